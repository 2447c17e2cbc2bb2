//! The handlers: programs that happen to be tools.

use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use nexus::client::answers::Upload;
use nexus::domain::Value;
use nexus::runner::{Ctx, Op, OperationError, Output, Until};

/// A handler under way.
pub type Handling = BoxFuture<'static, Result<Output, OperationError>>;

/// The child: takes as long as it is told, and says so.
pub async fn work(_: Ctx, input: Value) -> Output {
    let name = input
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or("?")
        .to_owned();
    let ms = input.get("ms").and_then(Value::as_i64).unwrap_or(50);
    tokio::time::sleep(Duration::from_millis(ms.unsigned_abs())).await;
    Output::text(format!("did {name}"))
}

fn piece(name: &str, ms: i64) -> Value {
    Value::from([("name", name.into()), ("ms", ms.into())])
}

/// Ten calls at once, a race of two more, a question, and a file in the answer.
pub async fn fan_out(ctx: Ctx) -> Result<Output, OperationError> {
    let ten = (0..10).map(|n| ctx.start("work", piece(&format!("part {n}"), 50)));
    let ten = try_join_all(ten).await?;
    let all = ctx.join(&ten.iter().collect::<Vec<_>>()).await?;
    let (hare, tortoise) = (
        ctx.start("work", piece("hare", 50)).await?,
        ctx.start("work", piece("tortoise", 5_000)).await?,
    );
    let won = ctx.race(&[&hare, &tortoise], Until::Any).await?;
    let answer = ctx.ask("Publish it?", &["yes", "no"]).await?;
    let lines: Vec<String> = all.results().iter().map(|r| r.text().to_owned()).collect();
    let report = format!(
        "{}\nfirst: {}\npublish: {}",
        lines.join("\n"),
        won.text(),
        answer.text()
    );
    let upload: Upload = match ctx.upload("report.txt", report.into()).await {
        Ok(upload) => upload,
        Err(e) => return Ok(Output::failed(e.to_string())),
    };
    observe_the_rest(&ten).await?;
    observe_the_rest(&[hare, tortoise]).await?;
    Ok(Output::text("ten parts, one winner, one answer").with_link(&upload))
}

/// A call publishes once every operation is observed: those of a join, too.
async fn observe_the_rest(ops: &[Op]) -> Result<(), OperationError> {
    for op in ops {
        op.outcome().await?;
    }
    Ok(())
}

/// The first of three wins.
pub async fn race(ctx: Ctx) -> Result<Output, OperationError> {
    let racers = [
        ctx.start("work", piece("a", 3_000)).await?,
        ctx.start("work", piece("b", 100)).await?,
        ctx.start("work", piece("c", 3_000)).await?,
    ];
    let won = ctx
        .race(&racers.iter().collect::<Vec<_>>(), Until::Any)
        .await?;
    observe_the_rest(&racers).await?;
    Ok(Output::text(format!("the winner {}", won.text())))
}

/// Work, a person's word, more work.
pub async fn approval(ctx: Ctx) -> Result<Output, OperationError> {
    let draft = ctx.tool("work", piece("the draft", 100)).await?;
    let answer = ctx
        .ask(&format!("{}: send it?", draft.text()), &["yes", "no"])
        .await?;
    if answer.text() != "yes" {
        return Ok(Output::text("not sent"));
    }
    let sent = ctx.tool("work", piece("the sending", 100)).await?;
    Ok(Output::text(sent.text()))
}

/// A program that is cut in the middle and started again under the same claim: what it had accepted is
/// not accepted twice, what it had observed is told as it was.
pub async fn resume(ctx: Ctx) -> Result<Output, OperationError> {
    let cut = tokio::time::timeout(Duration::from_millis(250), chain(&ctx)).await;
    println!("  cut in the middle: {}", cut.is_err());
    chain(&ctx.restarted()).await
}

async fn chain(ctx: &Ctx) -> Result<Output, OperationError> {
    let mut done = Vec::new();
    for n in 0..5 {
        let outcome = ctx.tool("work", piece(&format!("step {n}"), 50)).await?;
        done.push(outcome.text().to_owned());
    }
    Ok(Output::text(done.join(", ")))
}
