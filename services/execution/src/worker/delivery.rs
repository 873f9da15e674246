//! Delivers the messages of execution: watches and chains to confirmation, progress and the catalogue to intent.

use db::outbox::{Deliver, Delivery, DeliveryError};
use proto::confirmation::v1 as confirmation_pb;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::intent::v1 as intent_pb;
use proto::intent::v1::progress_service_client::ProgressServiceClient;
use service::delivery::{deliver, unknown_topic};

use crate::outbox::{PUT_CATALOGUE_ENTRY, PUT_CHAIN, PUT_WATCH, RECORD_PROGRESS};

#[derive(Debug, Clone)]
pub struct MessageDelivery {
    confirmation: ConfirmationServiceClient<rpc::Client>,
    intent: ProgressServiceClient<rpc::Client>,
}

impl MessageDelivery {
    pub fn new(confirmation: rpc::Client, intent: rpc::Client) -> Self {
        Self {
            confirmation: ConfirmationServiceClient::new(confirmation),
            intent: ProgressServiceClient::new(intent),
        }
    }
}

impl Deliver for MessageDelivery {
    const RECEIVERS: &'static [&'static str] = &["confirmation", "intent"];

    async fn deliver(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        let (mut confirmation, mut intent) = (self.confirmation.clone(), self.intent.clone());
        match delivery.topic.as_str() {
            PUT_WATCH => {
                let call =
                    |it: confirmation_pb::PutWatchRequest| async move { confirmation.put_watch(it).await };
                deliver(delivery, call).await.map(drop)
            }
            PUT_CHAIN => {
                let call =
                    |it: confirmation_pb::PutChainRequest| async move { confirmation.put_chain(it).await };
                deliver(delivery, call).await.map(drop)
            }
            PUT_CATALOGUE_ENTRY => {
                let call = |it: intent_pb::PutCatalogueEntryRequest| async move {
                    intent.put_catalogue_entry(it).await
                };
                deliver(delivery, call).await.map(drop)
            }
            RECORD_PROGRESS => {
                let call =
                    |it: intent_pb::RecordProgressRequest| async move { intent.record_progress(it).await };
                deliver(delivery, call).await.map(drop)
            }
            _ => Err(unknown_topic(delivery)),
        }
    }
}
