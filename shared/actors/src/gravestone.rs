//! No actor dies unseen.

use tokio::sync::mpsc;

/// How many deaths can wait to be read; one is enough to end the process.
const DEATHS_KEPT: usize = 16;

/// Held by an actor; tells when the actor is dropped while panicking.
#[derive(Debug)]
pub struct Gravestone {
    actor: &'static str,
    tell: mpsc::Sender<&'static str>,
}

/// The deaths of actors, by name, as they happen.
#[derive(Debug)]
pub struct Deaths(mpsc::Receiver<&'static str>);

/// Hands out gravestones, and the place where their news arrives.
pub fn deaths() -> (impl Fn(&'static str) -> Gravestone + Clone, Deaths) {
    let (tell, news) = mpsc::channel(DEATHS_KEPT);
    (move |actor| Gravestone { actor, tell: tell.clone() }, Deaths(news))
}

impl Deaths {
    /// The next actor that panicked; never returns while all are well.
    pub async fn next(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(actor) => actor,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Gravestone {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(actor = self.actor, "an actor panicked; its service is gone");
            // Full means that a death is known already.
            let _ = self.tell.try_send(self.actor);
        }
    }
}

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler, Message};

    use super::*;

    struct Fragile(#[allow(dead_code, reason = "held for its drop")] Gravestone);

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
    async fn a_panic_in_a_handler_is_told() {
        let (gravestone, mut deaths) = deaths();
        let actor = Fragile(gravestone("fragile")).start();
        assert!(actor.send(Break).await.is_err());
        assert_eq!(deaths.next().await, "fragile");
    }
}
