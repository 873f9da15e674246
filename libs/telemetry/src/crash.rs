//! Places at which a test build may be killed, as by `kill -9` at that very instruction.
//!
//! In a release build a crash point is nothing. In a build with debug assertions `BURSAR_CRASH_POINT=name` aborts the process
//! the first time `name` is passed, `name:3` the third time. A point that is passed for many kinds of work also goes by
//! `name/kind`. It lives here because every library that commits or sends something depends on this one.

/// Aborts the process here if the environment asks for it. Does nothing in a release build.
#[inline]
pub fn crash_point(name: &str) {
    crash_point_of(name, "");
}

/// As [`crash_point`], at a place that all kinds of work pass: the order may name the place alone or one kind of work.
#[inline]
pub fn crash_point_of(name: &str, kind: &str) {
    #[cfg(debug_assertions)]
    armed::pass(name, kind);
    #[cfg(not(debug_assertions))]
    let _ = (name, kind);
}

#[cfg(any(debug_assertions, test))]
mod armed {
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Order {
        pub(super) name: String,
        pub(super) pass: u64,
    }

    impl Order {
        pub(super) fn is_for(&self, name: &str, kind: &str) -> bool {
            match self.name.split_once('/') {
                None => self.name == name,
                Some((ordered, of)) => ordered == name && of == kind,
            }
        }
    }

    pub(super) fn parse(text: &str) -> Option<Order> {
        let (name, pass) = match text.rsplit_once(':') {
            Some((name, pass)) => (name, pass.parse().ok().filter(|pass| *pass > 0)?),
            None => (text, 1),
        };
        (!name.is_empty()).then(|| Order { name: name.to_owned(), pass })
    }

    #[cfg(debug_assertions)]
    pub(super) fn pass(name: &str, kind: &str) {
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicU64, Ordering};

        const VARIABLE: &str = "BURSAR_CRASH_POINT";
        static ORDER: OnceLock<Option<Order>> = OnceLock::new();
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let order = ORDER.get_or_init(|| std::env::var(VARIABLE).ok().as_deref().and_then(parse));
        let Some(order) = order.as_ref().filter(|order| order.is_for(name, kind)) else { return };
        if PASSED.fetch_add(1, Ordering::SeqCst) + 1 == order.pass {
            tracing::error!(crash_point = name, kind, pass = order.pass, "aborting as ordered");
            // Not a panic: no destructor runs and nothing is flushed, as after a power cut of this process.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::armed::{Order, parse};

    #[test]
    fn an_order_names_a_point_and_a_pass() {
        let order = |name: &str, pass| Some(Order { name: name.to_owned(), pass });
        assert_eq!(parse("execution.after_sign"), order("execution.after_sign", 1));
        assert_eq!(parse("execution.after_sign:3"), order("execution.after_sign", 3));
        for nonsense in ["", ":2", "x:0", "x:y"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn an_order_is_for_every_kind_or_for_the_one_it_names() {
        let order = |text: &str| parse(text).unwrap_or_else(|| panic!("{text} is an order"));
        assert!(order("outbox.after_delivery").is_for("outbox.after_delivery", "confirmation.PutWatch"));
        let narrow = order("outbox.after_delivery/confirmation.PutWatch");
        assert!(narrow.is_for("outbox.after_delivery", "confirmation.PutWatch"));
        assert!(!narrow.is_for("outbox.after_delivery", "intent.RecordProgress"));
        assert!(!narrow.is_for("outbox.before_delivery", "confirmation.PutWatch"));
    }
}
