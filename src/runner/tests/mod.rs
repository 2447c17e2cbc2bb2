//! The runner against a small kernel on real sockets. Windows are short, and tests wait on what the
//! kernel saw, never on time.

mod carrying;
mod claiming;
mod fake;
mod holding;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::fake::Fake;
use super::*;

/// Quick paces; polling is far away unless a test brings it near.
fn quick() -> Timing {
    Timing {
        poll: Duration::from_secs(60),
        confirm: Duration::from_secs(60),
        check: Duration::from_secs(60),
        grace: Duration::from_secs(10),
        cancel_grace: Duration::from_millis(200),
        commit_within: Duration::from_secs(20),
        progress: Duration::from_millis(40),
        backoff: RetryPolicy {
            base: Duration::from_millis(5),
            longest: Duration::from_millis(50),
            ..RetryPolicy::default()
        },
        cable: cable::Options {
            base: Duration::from_millis(5),
            silence: Duration::from_secs(60),
            ..cable::Options::default()
        },
    }
}

/// A runner that serves until it is stopped.
struct Served {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Report, Error>>,
}

impl Served {
    fn start(builder: Builder) -> Self {
        let runner = builder.build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(runner.serve(async {
            let _ = stopped.await;
        }));
        Self { stop, task }
    }

    async fn stop(self) -> Report {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap()
    }
}

fn builder(fake: &Fake, timing: Timing) -> Builder {
    let client = Client::new(&fake.base, "sk-test").unwrap();
    tools::builtin(Runner::builder(client).timing(timing))
}
