//! Delivers what execution has to tell: watches and chains to confirmation, progress and the catalogue to intent.

use db::outbox::{Deliver, Delivery, DeliveryError};
use prost::Message;
use proto::confirmation::v1 as confirmation;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::intent::v1 as intent;
use proto::intent::v1::progress_service_client::ProgressServiceClient;
use tonic::{Code, Status};

use crate::outbox::{PUT_CATALOGUE_ENTRY, PUT_CHAIN, PUT_WATCH, RECORD_PROGRESS};

#[derive(Debug, Clone)]
pub struct Delivering {
    confirmation: ConfirmationServiceClient<rpc::Client>,
    intent: ProgressServiceClient<rpc::Client>,
}

impl Delivering {
    pub fn new(confirmation: rpc::Client, intent: rpc::Client) -> Self {
        Self {
            confirmation: ConfirmationServiceClient::new(confirmation),
            intent: ProgressServiceClient::new(intent),
        }
    }
}

impl Deliver for Delivering {
    const RECEIVERS: &'static [&'static str] = &["confirmation", "intent"];

    async fn deliver(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        match delivery.topic.as_str() {
            PUT_WATCH => {
                let request: confirmation::PutWatchRequest = decode(delivery)?;
                self.confirmation.clone().put_watch(request).await.map(drop).map_err(|status| judge(&status))
            }
            PUT_CHAIN => {
                let request: confirmation::PutChainRequest = decode(delivery)?;
                self.confirmation.clone().put_chain(request).await.map(drop).map_err(|status| judge(&status))
            }
            PUT_CATALOGUE_ENTRY => {
                let request: intent::PutCatalogueEntryRequest = decode(delivery)?;
                self.intent
                    .clone()
                    .put_catalogue_entry(request)
                    .await
                    .map(drop)
                    .map_err(|status| judge(&status))
            }
            RECORD_PROGRESS => {
                let request: intent::RecordProgressRequest = decode(delivery)?;
                self.intent.clone().record_progress(request).await.map(drop).map_err(|status| judge(&status))
            }
            other => Err(DeliveryError::Permanent(format!("nobody takes messages of topic {other:?}"))),
        }
    }
}

fn decode<M: Message + Default>(delivery: &Delivery) -> Result<M, DeliveryError> {
    M::decode(delivery.payload.as_slice()).map_err(|error| DeliveryError::Permanent(error.to_string()))
}

/// Only what the receiver will refuse again for the same words is permanent: a watch that is given up is a payment nobody
/// looks at, so doubt means another try.
fn judge(status: &Status) -> DeliveryError {
    let text = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::InvalidArgument | Code::AlreadyExists | Code::OutOfRange => DeliveryError::Permanent(text),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => DeliveryError::Transient(text),
    }
}
