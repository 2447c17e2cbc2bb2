//! `echo`, `add`, `sleep`, `fail`, `flaky` and `write_note` (`operating.md` §2).
//!
//! | tool | input | comes to |
//! |---|---|---|
//! | `echo` | any object | its `text` when it has one, else the input as JSON; the input as structured value |
//! | `add` | `{"a": number, "b": number}` or `{"numbers": [number…]}` | the sum |
//! | `sleep` | `{"ms": 0…86400000}` | waits, showing progress four times a second; stops at once when canceled |
//! | `fail` | `{"message"?}` | `outcome: failed` |
//! | `flaky` | `{"fail_times"?: n (default 1), …}` | `is_error: true` for the first n calls with the same input, then ok; counted in this process |
//! | `write_note` | `{"name": file name, "text"}` | writes a file; not replayable |

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::ServedTool;
use crate::domain::Value;
use crate::runner::{Builder, Ctx, Output, profiles};

/// The longest `sleep`.
const LONGEST_SLEEP_MS: i64 = 86_400_000;

/// Adds `echo`, `add`, `sleep`, `fail` and `flaky`.
#[must_use]
pub fn builtin(builder: Builder) -> Builder {
    let flaky = Arc::new(Flaky::default());
    builder
        .served(
            ServedTool::new("echo", profiles::PURE).described(
                "Answers what it was given: the text, or the whole input as JSON",
                schema(&[("text", "string")], &[]),
            ),
            |_: Ctx, input| async move { echo(&input) },
        )
        .served(
            ServedTool::new("add", profiles::PURE).described(
                "Adds the numbers a and b, or all numbers of a list",
                schema(
                    &[("a", "number"), ("b", "number"), ("numbers", "array")],
                    &[],
                ),
            ),
            |_: Ctx, input| async move { add(&input) },
        )
        .served(
            ServedTool::new("sleep", profiles::READ_ONLY).described(
                "Waits that many milliseconds, showing progress",
                schema(&[("ms", "integer")], &["ms"]),
            ),
            |ctx, input| async move { sleep(&ctx, &input).await },
        )
        .served(
            ServedTool::new("fail", profiles::PURE).described(
                "Fails, always: for trying out failure policies",
                schema(&[("message", "string")], &[]),
            ),
            |_: Ctx, input| async move { fail(&input) },
        )
        .served(
            ServedTool::new("flaky", profiles::READ_ONLY).described(
                "Errs the first fail_times calls with the same input, then succeeds",
                schema(&[("fail_times", "integer")], &[]),
            ),
            move |_: Ctx, input: Value| {
                let output = flaky.call(&input);
                async move { output }
            },
        )
}

/// Adds `write_note`, which writes into `folder` (made when it is not there).
#[must_use]
pub fn write_note(builder: Builder, folder: PathBuf) -> Builder {
    let folder: Arc<Path> = folder.into();
    builder.served(
        ServedTool::new("write_note", profiles::WRITE).described(
            "Writes a note into a file of the runner's notes folder",
            schema(&[("name", "string"), ("text", "string")], &["name", "text"]),
        ),
        move |_: Ctx, input: Value| {
            let folder = Arc::clone(&folder);
            async move { note(&folder, &input).await }
        },
    )
}

fn schema(properties: &[(&str, &str)], required: &[&str]) -> Value {
    let property = |kind: &str| Value::from([("type", kind.into())]);
    let properties = properties
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), property(kind)))
        .collect();
    let required = required.iter().map(|name| (*name).into()).collect();
    Value::from([
        ("type", "object".into()),
        ("properties", Value::Object(properties)),
        ("required", Value::Array(required)),
    ])
}

fn echo(input: &Value) -> Output {
    let text = match input.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => serde_json::to_string(input).unwrap_or_default(),
    };
    Output::text(text).with_structured(input.clone())
}

fn add(input: &Value) -> Output {
    let numbers: Vec<Option<&Value>> = match input.get("numbers").and_then(Value::as_array) {
        Some(items) => items.iter().map(Some).collect(),
        None => vec![input.get("a"), input.get("b")],
    };
    match sum(&numbers) {
        Some(sum) => {
            let text = serde_json::to_string(&sum).unwrap_or_default();
            Output::text(text).with_structured(Value::from([("sum", sum)]))
        }
        None => Output::error(
            "add takes numbers a and b, or a list `numbers`; whole sums must fit 64 bits",
        ),
    }
}

/// Whole while every number is whole, else a double.
fn sum(numbers: &[Option<&Value>]) -> Option<Value> {
    let mut whole = Some(0i64);
    let mut double = 0f64;
    for number in numbers {
        match number {
            Some(Value::Int(n)) => {
                let n = n.as_i64()?;
                whole = match whole {
                    Some(sum) => Some(sum.checked_add(n)?),
                    None => None,
                };
                double += n as f64;
            }
            Some(Value::Float(f)) => {
                whole = None;
                double += f;
            }
            _ => return None,
        }
    }
    match whole {
        Some(sum) => Some(sum.into()),
        None => double.is_finite().then_some(Value::Float(double)),
    }
}

async fn sleep(ctx: &Ctx, input: &Value) -> Output {
    let ms = input.get("ms").and_then(Value::as_i64);
    let Some(ms) = ms.filter(|ms| (0..=LONGEST_SLEEP_MS).contains(ms)) else {
        return Output::error("sleep takes {\"ms\": a whole number from 0 to 86400000}");
    };
    let whole = Duration::from_millis(ms.unsigned_abs());
    let began = Instant::now();
    while let Some(left) = whole.checked_sub(began.elapsed()).filter(|l| !l.is_zero()) {
        let done = began.elapsed().as_millis();
        let percent = done * 100 / whole.as_millis().max(1);
        ctx.progress(format!("{percent} % of {ms} ms"));
        tokio::select! {
            () = tokio::time::sleep(left.min(Duration::from_millis(250))) => {}
            () = ctx.canceled().cancelled() => return Output::error("canceled"),
        }
    }
    Output::text(format!("slept {ms} ms"))
}

fn fail(input: &Value) -> Output {
    let message = input.get("message").and_then(Value::as_str);
    Output::failed(message.unwrap_or("asked to fail"))
}

/// How often each input came.
#[derive(Default)]
struct Flaky {
    seen: Mutex<HashMap<String, i64>>,
}

impl Flaky {
    fn call(&self, input: &Value) -> Output {
        let times = match input.get("fail_times") {
            None => Some(1),
            Some(n) => n.as_i64().filter(|n| *n >= 0),
        };
        let Some(times) = times else {
            return Output::error("fail_times is a whole number, 0 or more");
        };
        let key = serde_json::to_string(input).unwrap_or_default();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let made = seen.entry(key).or_default();
        *made += 1;
        if *made <= times {
            Output::error(format!("attempt {made} of {times} that err"))
        } else {
            Output::text(format!("ok at attempt {made}"))
        }
    }
}

async fn note(folder: &Path, input: &Value) -> Output {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let (Some(name), Some(words)) = (text("name").filter(|n| is_file_name(n)), text("text")) else {
        return Output::error(
            "write_note takes {\"name\", \"text\"}; a name is 1 to 100 letters, digits, `.`, `-` \
             or `_` and does not begin with a dot",
        );
    };
    let path = folder.join(name);
    let written = async {
        tokio::fs::create_dir_all(folder).await?;
        tokio::fs::write(&path, words).await
    };
    match written.await {
        Ok(()) => Output::text(format!("wrote {} bytes to {name}", words.len()))
            .with_title(format!("note {name}")),
        Err(e) => Output::failed(format!("{} cannot be written: {e}", path.display())),
    }
}

fn is_file_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=100).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

    fn value(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn add_is_exact_for_whole_numbers_and_says_what_it_takes() {
        let sum = |text: &str| add(&value(text));
        let ok = |text: &str, sum: Value| {
            Output::text(text).with_structured(Value::from([("sum", sum)]))
        };
        assert_eq!(
            sum(r#"{"a":9007199254740993,"b":1}"#),
            ok("9007199254740994", 9_007_199_254_740_994.into())
        );
        assert_eq!(sum(r#"{"numbers":[1,0.5]}"#), ok("1.5", Value::Float(1.5)));
        let refused = sum(r#"{"a":1}"#);
        assert_eq!(refused, sum(r#"{"a":"1","b":2}"#));
        assert_eq!(refused, sum(r#"{"a":9223372036854775807,"b":1}"#));
    }

    #[test]
    fn flaky_counts_by_input() {
        let flaky = Flaky::default();
        let call = |text: &str| flaky.call(&value(text));
        let a = r#"{"fail_times":2,"x":"a"}"#;
        assert_eq!(call(a), Output::error("attempt 1 of 2 that err"));
        assert_eq!(call(r#"{}"#), Output::error("attempt 1 of 1 that err"));
        assert_eq!(call(a), Output::error("attempt 2 of 2 that err"));
        assert_eq!(call(a), Output::text("ok at attempt 3"));
        assert_eq!(call(r#"{}"#), Output::text("ok at attempt 2"));
    }

    #[tokio::test]
    async fn a_note_cannot_leave_its_folder() {
        let folder =
            std::env::temp_dir().join(format!("notes-{}", crate::client::idempotency_key()));
        let input = |name: &str| Value::from([("name", name.into()), ("text", "hi".into())]);
        for name in ["../x", "a/b", ".hidden", "", "a\0b"] {
            let output = note(&folder, &input(name)).await;
            assert_eq!(output, note(&folder, &Value::Null).await, "{name}");
        }
        assert!(!folder.exists());
        let output = note(&folder, &input("a.txt")).await;
        assert_eq!(
            output,
            Output::text("wrote 2 bytes to a.txt").with_title("note a.txt")
        );
        let read = std::fs::read_to_string(folder.join("a.txt")).unwrap();
        assert_eq!(read, "hi");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
