//! A failure in words: what the server said, whole.
//!
//! `conventions.md` §4: an error's envelope has a code and a message, and perhaps where it is (`path`,
//! `parameter`), what stands (`current_revision`) and, of steps, an error each with its position.

use super::Failure;
use super::watch::render::clean;
use crate::client::{Error, chain};
use crate::domain::Value;

/// The failure in words: its first line names code and message, the others what else the envelope
/// holds, a line a member and a line a step.
pub fn explain(failure: &Failure) -> String {
    let mut lines = vec![clean(&chain(failure))];
    if let Failure::Call(error) = failure {
        lines.extend(members(error));
        lines.extend(steps(error));
    }
    lines.join("\n")
}

/// The envelope as it came, when a server answered one.
pub(super) fn envelope(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Call(Error::Api { body, .. }) if **body != Value::Null => {
            serde_json::to_string(body).ok()
        }
        _ => None,
    }
}

fn members(error: &Error) -> Vec<String> {
    let Error::Api { body, .. } = error else {
        return Vec::new();
    };
    let Some(Value::Object(members)) = body.get("error") else {
        return Vec::new();
    };
    let said = |name: &str| matches!(name, "code" | "message" | "steps");
    let others = members.iter().filter(|(name, _)| !said(name));
    others
        .map(|(name, value)| format!("  {}: {}", clean(name), words(value)))
        .collect()
}

fn steps(error: &Error) -> Vec<String> {
    let steps = error.detail("steps").and_then(Value::as_array);
    let line = |step: &Value| {
        let code = step.get("code").map(words).unwrap_or_default();
        match step.get("path") {
            Some(path) => format!("  {}: {code}", words(path)),
            None => format!("  the steps as a whole: {code}"),
        }
    };
    steps.into_iter().flatten().map(line).collect()
}

fn words(value: &Value) -> String {
    match value {
        Value::Str(text) => clean(text),
        other => clean(&serde_json::to_string(other).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

    fn api(status: u16, body: &str) -> Failure {
        Failure::Call(Error::Api {
            status,
            code: "invalid_steps".to_owned(),
            message: "the steps cannot be used".to_owned(),
            retry_after: None,
            body: Box::new(json::parse(body.as_bytes()).unwrap()),
        })
    }

    /// `runs.md` §1, `steps.md` §2: code, message, path, and each step's code and position.
    #[test]
    fn a_refusal_shows_its_path_what_stands_and_every_step() {
        let failure = api(
            422,
            r#"{"error":{"code":"invalid_steps","message":"m","path":"run.steps",
                "current_revision":3,"steps":[
                {"code":"edge_authoring_refused","path":"steps[0].model.depends_on"},
                {"code":"too_many_steps"}]}}"#,
        );
        assert_eq!(
            explain(&failure),
            "422 invalid_steps: the steps cannot be used\n  current_revision: 3\n  path: run.steps\n  \
             steps[0].model.depends_on: edge_authoring_refused\n  the steps as a whole: too_many_steps"
        );
    }

    #[test]
    fn what_is_no_envelope_is_its_one_line() {
        let failure = api(502, "null");
        assert_eq!(
            explain(&failure),
            "502 invalid_steps: the steps cannot be used"
        );
        assert_eq!(envelope(&failure), None);
        assert_eq!(explain(&Failure::Usage("u".to_owned())), "u");
    }
}
