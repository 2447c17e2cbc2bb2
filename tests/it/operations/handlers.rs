//! Handlers over the runner library: child work in order, replay after a cut, one place for a call and
//! the child that it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nexus::client::Client;
use nexus::domain::Value;
use nexus::runner::{Ctx, OperationError, Output, Runner, Until, profiles};
use serde_json::json;

use super::defaults;
use crate::support::TestApp;
use crate::support::http::text;
use crate::support::seed::{World, serve};

/// A piece of work: says which.
async fn echo(_: Ctx, input: Value) -> Output {
    let n = input.get("n").and_then(Value::as_i64).unwrap_or(-1);
    Output::text(format!("did {n}"))
}

fn piece(n: i64) -> Value {
    Value::from([("n", n.into())])
}

/// Runs one call of `program` with that handler, on a runner with so many places, to its end; gives
/// what it published.
async fn run_program<F, Fut>(places: usize, handler: F) -> (TestApp, World, String, String)
where
    F: Fn(Ctx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Output, OperationError>> + Send + 'static,
{
    let app = TestApp::with().replicas(2).start().await;
    let sql = app.sql().await;
    let world = World::in_database(&sql, "a").await;
    serve(
        &sql,
        world.account,
        &world.runner,
        "program",
        profiles_write(),
        None,
    )
    .await;
    let client = Client::new(&app.on(0).base, &world.runner.token).unwrap();
    let handler = Arc::new(handler);
    let runner = Runner::builder(client)
        .concurrency(places)
        .tool("echo", profiles::READ_ONLY, echo)
        .tool("write_note", profiles::WRITE, echo)
        .tool("program", profiles::WRITE, move |ctx: Ctx, _| {
            let handler = Arc::clone(&handler);
            async move {
                match handler(ctx).await {
                    Ok(output) => output,
                    Err(e) => Output::failed(e.to_string()),
                }
            }
        })
        .build()
        .unwrap();
    let (done, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(runner.serve(async move { drop(ended.await) }));
    let mut step = world.routed("code", "program");
    step["tool"]["model_defaults"] = defaults(&world);
    let run = world.run(&app, json!([step])).await;
    crate::support::fleet::until("the program ends", async || {
        let shown = world.show(&app, &run).await;
        ["completed", "needs_attention"].contains(&text(&shown, "run.status"))
    })
    .await;
    drop(done);
    serving.await.unwrap().unwrap();
    let row = sql
        .query_one(
            "SELECT coalesce(x.content, t.error_detail, '') FROM tasks t LEFT JOIN task_results x USING (account_id, run_id, task_no)
              WHERE t.key = 'code'",
            &[],
        )
        .await
        .unwrap();
    let content = row.get(0);
    (app, world, run, content)
}

fn profiles_write() -> &'static str {
    crate::support::seed::WRITE
}

/// A call waits for its child on a runner with one place: the child runs in it. And a fan-out, a race, a
/// question's absence: what a handler says of them.
#[tokio::test]
async fn a_waiting_handler_lends_its_place() {
    let program = |ctx: Ctx| async move {
        let one = ctx.tool("work", piece(1)).await?;
        let ops = [
            ctx.start("work", piece(2)).await?,
            ctx.start("work", piece(3)).await?,
        ];
        let won = ctx
            .race(&ops.iter().collect::<Vec<_>>(), Until::Any)
            .await?;
        for op in &ops {
            op.outcome().await?;
        }
        let refused = ctx.tool("rm", piece(0)).await;
        assert!(
            matches!(refused, Err(OperationError::Refused { ref code, .. }) if code == "unknown_tool_name")
        );
        let steps = Value::Array(vec![Value::from([(
            "tool",
            Value::from([("name", "note".into()), ("input", piece(4))]),
        )])]);
        let noted = ctx.steps(steps).await?.outcome().await?;
        Ok(Output::text(format!(
            "{} {} {}",
            one.text(),
            won.is_completed(),
            noted.text()
        )))
    };
    let (app, .., content) = run_program(1, program).await;
    assert_eq!(content, r#"[{"text":"did 1 true did 4","type":"text"}]"#);
    app.finish().await;
}

/// `operations.md` §8, issue of replay: a handler is cut after each of its requests in turn (heard or
/// not), and started again under its claim: no child twice, the same outcomes, the same result.
#[tokio::test]
async fn a_handler_cut_anywhere_goes_on_by_replay() {
    const STEPS: i64 = 8;
    static CUTS: AtomicUsize = AtomicUsize::new(0);
    async fn program(ctx: Ctx) -> Result<String, OperationError> {
        let mut told = Vec::new();
        for n in 0..STEPS / 2 {
            let pair = [
                ctx.start("work", piece(2 * n)).await?,
                ctx.start("work", piece(2 * n + 1)).await?,
            ];
            for op in &pair {
                told.push(op.outcome().await?.text().to_owned());
            }
        }
        Ok(told.join(","))
    }
    let handler = |ctx: Ctx| async move {
        let mut patience = Duration::from_micros(500);
        loop {
            let again = ctx.restarted();
            match tokio::time::timeout(patience, program(again)).await {
                Ok(told) => return Ok(Output::text(told?)),
                Err(_) => drop(CUTS.fetch_add(1, Ordering::Relaxed)),
            }
            patience += Duration::from_micros(2_500);
        }
    };
    let (app, world, run, content) = run_program(2, handler).await;
    let expected: Vec<String> = (0..STEPS).map(|n| format!("did {n}")).collect();
    assert_eq!(
        content,
        format!(r#"[{{"text":"{}","type":"text"}}]"#, expected.join(","))
    );
    let shown = world.show(&app, &run).await;
    assert_eq!(
        crate::support::http::items(&shown, "run.tasks").len() as i64,
        1 + STEPS
    );
    let cuts = CUTS.load(Ordering::Relaxed);
    eprintln!("cut {cuts} times");
    assert!(cuts >= 8, "it was cut all along: {cuts}");
    app.finish().await;
}
