//! Delivers the messages of execution: watches and chains to confirmation, progress and the catalogue to intent.

use db::outbox::{Deliver, Delivery, DeliveryError};
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
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
                deliver(delivery, |request| async move { confirmation.put_watch(request).await }).await.map(drop)
            }
            PUT_CHAIN => {
                deliver(delivery, |request| async move { confirmation.put_chain(request).await }).await.map(drop)
            }
            PUT_CATALOGUE_ENTRY => {
                let call = |request| async move { intent.put_catalogue_entry(request).await };
                deliver(delivery, call).await.map(drop)
            }
            RECORD_PROGRESS => {
                deliver(delivery, |request| async move { intent.record_progress(request).await }).await.map(drop)
            }
            _ => Err(unknown_topic(delivery)),
        }
    }
}
