//! Delivers what execution has to tell: watches and chains to confirmation, progress and the catalogue to intent.

use db::outbox::{Deliver, Delivery, DeliveryError};
use proto::confirmation::v1 as confirmation_pb;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::intent::v1 as intent_pb;
use proto::intent::v1::progress_service_client::ProgressServiceClient;
use service::delivery::{deliver, unknown_topic};

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
                let mut client = self.confirmation.clone();
                deliver(delivery, |request: confirmation_pb::PutWatchRequest| async move {
                    client.put_watch(request).await
                })
                .await
                .map(drop)
            }
            PUT_CHAIN => {
                let mut client = self.confirmation.clone();
                deliver(delivery, |request: confirmation_pb::PutChainRequest| async move {
                    client.put_chain(request).await
                })
                .await
                .map(drop)
            }
            PUT_CATALOGUE_ENTRY => {
                let mut client = self.intent.clone();
                deliver(delivery, |request: intent_pb::PutCatalogueEntryRequest| async move {
                    client.put_catalogue_entry(request).await
                })
                .await
                .map(drop)
            }
            RECORD_PROGRESS => {
                let mut client = self.intent.clone();
                deliver(delivery, |request: intent_pb::RecordProgressRequest| async move {
                    client.record_progress(request).await
                })
                .await
                .map(drop)
            }
            _ => Err(unknown_topic(delivery)),
        }
    }
}
