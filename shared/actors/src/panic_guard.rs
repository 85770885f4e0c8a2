//! Reports a panicking actor.

pub use tasks::PanicGuard;

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler, Message};

    use super::*;

    struct Fragile(#[allow(dead_code, reason = "held for its drop")] PanicGuard);

    impl Actor for Fragile {
        type Context = Context<Self>;
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Break;

    impl Handler<Break> for Fragile {
        type Result = ();

        fn handle(&mut self, _: Break, _: &mut Self::Context) {
            panic!("on purpose");
        }
    }

    #[actix::test]
    async fn panic_in_a_handler_is_reported() {
        let mut panics = tasks::panics();
        let actor = Fragile(PanicGuard::of("fragile")).start();
        assert!(actor.send(Break).await.is_err());
        assert_eq!(panics.next().await, tasks::Panic::Service("fragile"));
    }
}
