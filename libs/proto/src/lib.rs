//! Generated code of the gRPC contracts, and what can be read off them.
//!
//! Owns: the modules generated from `proto/bursar/<context>/v1`, the encoded descriptors that reflection serves, the
//! access option of each method, conversions of the well-known time types, and the conversions of `libs/payment`.
//! Never: business rules, I/O, hand-written messages.

pub mod access;
pub mod payment;
pub mod time;

/// Every Bursar file and all that they import, encoded. Reflection serves this; the access option is read from it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Generated modules. Lints of ours are not meant for generated code.
macro_rules! contract {
    ($context:ident, $package:literal) => {
        #[allow(
            missing_debug_implementations,
            unreachable_pub,
            clippy::all,
            clippy::unwrap_used,
            reason = "generated code"
        )]
        pub mod $context {
            pub mod v1 {
                tonic::include_proto!($package);
            }
        }
    };
}

contract!(confirmation, "bursar.confirmation.v1");
contract!(execution, "bursar.execution.v1");
contract!(indexer, "bursar.indexer.v1");
contract!(intent, "bursar.intent.v1");
contract!(options, "bursar.options.v1");
contract!(signer, "bursar.signer.v1");
contract!(workercontrol, "bursar.workercontrol.v1");
