//! The default runner of a run, changed under its lock (`runs.md` §10).

use super::{Error, run_again, to_the_end};
use crate::app::App;
use crate::domain::event::Event;
use crate::domain::hint::{FeedItems, FeedKind, Hint};
use crate::domain::refusal::DefaultRunner as Refusal;
use crate::domain::{AccountId, PublicId};
use crate::engine::default_runner::{self, Decision, Wanted};
use crate::store::{RunTarget, shell};

/// Makes an executor the default runner of a run, or nobody. Narrated only when it changes.
///
/// # Errors
/// [`Refusal`], or a fault; nothing is written on either.
pub async fn set(
    app: &App,
    account: AccountId,
    run: PublicId,
    executor: Option<PublicId>,
) -> Result<(), Error<Refusal>> {
    let app = app.clone();
    let target = RunTarget { account, run };
    to_the_end(async move { run_again(|| set_once(&app, target, executor)).await }).await
}

async fn set_once(
    app: &App,
    target: RunTarget,
    executor: Option<PublicId>,
) -> Result<(), Error<Refusal>> {
    let shell = shell::lock(&app.store, target, executor).await?;
    let shell = shell.ok_or(Error::Refused(Refusal::NotFound))?;
    let wanted = match executor {
        None => Wanted::Nobody,
        Some(_) => Wanted::Executor(shell.executor),
    };
    match default_runner::decide(shell.default_runner, wanted, &shell.principal) {
        Err(refusal) => {
            shell.release().await;
            Err(Error::Refused(refusal))
        }
        Ok(Decision::Same) => {
            shell.release().await;
            Ok(())
        }
        Ok(Decision::Set(runner)) => {
            let event = Event::DefaultRunnerChanged {
                executor_public_id: executor,
            };
            let item = shell.set_default_runner(runner, &event).await?;
            let hint = Hint::Feed {
                kind: FeedKind::Run,
                host: target.run,
                items: FeedItems::Events,
                message: item.run_message(target.run),
            };
            app.bus.announce(vec![hint]).await;
            Ok(())
        }
    }
}
