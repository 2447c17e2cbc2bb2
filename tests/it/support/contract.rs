//! The contract: every answer that a test gets through a [`Door`](super::Door) is held against the
//! OpenAPI document, so that it can neither leave out what is answered nor claim what is not.
//!
//! Stricter than the document: a member that it does not name fails, though clients tolerate one.
//! A keyword that is not understood here fails too, so none is passed over.

use std::sync::LazyLock;

use reqwest::Method;
use serde_json::{Map, Value as Json};

use super::http::Answer;

static DOCUMENT: LazyLock<Json> = LazyLock::new(|| {
    serde_json::from_str(nexus::http::openapi::text()).expect("the document is JSON")
});

/// The document.
pub fn document() -> &'static Json {
    &DOCUMENT
}

fn members(value: &Json) -> &Map<String, Json> {
    value.as_object().expect("an object of the document")
}

/// What a reference stands for.
fn resolved(mut value: &'static Json) -> &'static Json {
    while let Some(to) = value.get("$ref").and_then(Json::as_str) {
        let pointer = to.trim_start_matches('#');
        value = DOCUMENT
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{to} points nowhere"));
    }
    value
}

/// The path item that a path is routed to: literal segments before parameters.
fn item(path: &str) -> Option<&'static Json> {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len()
            && wanted
                .iter()
                .zip(&parts)
                .all(|(w, p)| w == p || (w.starts_with('{') && !p.is_empty()))
    };
    members(&DOCUMENT["paths"])
        .iter()
        .filter(|(template, _)| fits(template))
        .min_by_key(|(template, _)| template.matches('{').count())
        .map(|(_, item)| item)
}

/// Panics when the document does not state this answer.
pub fn hold(method: &Method, path: &str, answer: &Answer) {
    let Some(operation) =
        item(path).and_then(|item| item.get(method.as_str().to_ascii_lowercase()))
    else {
        return; // No door: the tests of the router say what that answers.
    };
    let status = answer.status.as_u16();
    let stated = operation["responses"].get(status.to_string());
    let Some(stated) = stated.map(resolved) else {
        panic!("the document does not state {status}: {answer:?}");
    };
    for (name, header) in stated.get("headers").map(members).into_iter().flatten() {
        let is_required = resolved(header)["required"] == true;
        assert!(
            !is_required || answer.headers.contains_key(name.as_str()),
            "the document promises {name}: {answer:?}"
        );
    }
    let content = stated.get("content").map(members);
    let Some(json) = content.and_then(|kinds| kinds.get("application/json")) else {
        assert!(
            content.is_some() || answer.body.is_empty(),
            "the document states no body: {answer:?}"
        );
        return;
    };
    assert_eq!(
        answer.header("content-type"),
        "application/json",
        "{answer:?}"
    );
    let body: Json = serde_json::from_slice(&answer.body)
        .unwrap_or_else(|e| panic!("{answer:?} is no JSON: {e}"));
    if let Err(why) = fits(&json["schema"], &body, "") {
        panic!("the document states another answer: {why}\n{answer:?}");
    }
}

type Verdict = Result<(), String>;

fn require(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(why()) }
}

fn is_of_kind(kind: &str, value: &Json) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the document has a type {other}"),
    }
}

fn has_format(format: &str, text: &str) -> bool {
    match format {
        "uuid" => uuid::Uuid::parse_str(text).is_ok() && text == text.to_ascii_lowercase(),
        "date-time" => chrono::DateTime::parse_from_rfc3339(text).is_ok() && text.ends_with('Z'),
        other => panic!("the document has a format {other}"),
    }
}

/// Whether a value has a shape; else where not.
fn fits(schema: &'static Json, value: &Json, at: &str) -> Verdict {
    for (keyword, wanted) in members(schema) {
        one(schema, keyword, wanted, value, at)?;
    }
    Ok(())
}

fn one(
    schema: &'static Json,
    keyword: &str,
    wanted: &'static Json,
    value: &Json,
    at: &str,
) -> Verdict {
    let list = || wanted.as_array().expect("a list of the document").iter();
    let length = value
        .as_array()
        .map(Vec::len)
        .or_else(|| value.as_str().map(str::len));
    match keyword {
        "description" | "examples" | "default" => Ok(()),
        // Patterns are for clients: what is written is made by types that keep them.
        "pattern" => Ok(()),
        "$ref" => fits(resolved(schema), value, at),
        "type" => {
            let is = |kind: &Json| is_of_kind(kind.as_str().unwrap_or_default(), value);
            let holds = if wanted.is_array() {
                list().any(is)
            } else {
                is(wanted)
            };
            require(holds, || format!("{at} is no {wanted}"))
        }
        "enum" => require(list().any(|w| w == value), || {
            format!("{at} is {value}, none of {wanted}")
        }),
        "const" => require(wanted == value, || format!("{at} is {value}, not {wanted}")),
        "format" => {
            let format = wanted.as_str().unwrap_or_default();
            let holds = value.as_str().is_none_or(|text| has_format(format, text));
            require(holds, || format!("{at} is {value}, no {format}"))
        }
        "minimum" => {
            let holds = !value.is_number() || value.as_f64() >= wanted.as_f64();
            require(holds, || format!("{at} is {value}, below {wanted}"))
        }
        "maximum" => {
            let holds = !value.is_number() || value.as_f64() <= wanted.as_f64();
            require(holds, || format!("{at} is {value}, above {wanted}"))
        }
        "maxItems" | "maxLength" => {
            let most = wanted.as_u64().expect("a bound of the document");
            let holds = length.is_none_or(|n| n as u64 <= most);
            require(holds, || format!("{at} is longer than {wanted}"))
        }
        "allOf" => list().try_for_each(|schema| fits(schema, value, at)),
        "anyOf" => {
            let all: Vec<Verdict> = list().map(|schema| fits(schema, value, at)).collect();
            let whys = || {
                all.iter()
                    .filter_map(|v| v.clone().err())
                    .collect::<Vec<_>>()
            };
            require(all.iter().any(Result::is_ok), || whys().join("; nor "))
        }
        "items" => {
            let items = value.as_array().into_iter().flatten().enumerate();
            items
                .into_iter()
                .try_for_each(|(i, item)| fits(wanted, item, &format!("{at}[{i}]")))
        }
        // Only of objects: a nullable member states what it has when it is one.
        "required" => list().filter(|_| value.is_object()).try_for_each(|name| {
            let name = name.as_str().unwrap_or_default();
            require(value.get(name).is_some(), || {
                format!("{at}.{name} is missing")
            })
        }),
        "propertyNames" => named(value).try_for_each(|(name, _)| {
            fits(wanted, &Json::from(name.as_str()), &format!("{at}.{name}"))
        }),
        "properties" => {
            let is_closed =
                schema.get("type").is_some() && schema.get("additionalProperties").is_none();
            named(value).try_for_each(|(name, member)| {
                let at = format!("{at}.{name}");
                match wanted.get(name) {
                    Some(schema) => fits(schema, member, &at),
                    None => require(!is_closed, || format!("{at} is not in the document")),
                }
            })
        }
        "additionalProperties" => {
            let known = schema.get("properties");
            let mut others = named(value)
                .filter(|(name, _)| known.is_none_or(|known| known.get(name.as_str()).is_none()));
            match wanted {
                Json::Bool(true) => Ok(()),
                Json::Bool(false) => require(others.next().is_none(), || format!("{at} has more")),
                schema => others.try_for_each(|(name, v)| fits(schema, v, &format!("{at}.{name}"))),
            }
        }
        other => panic!("the document uses {other}, which this harness cannot judge"),
    }
}

fn named(value: &Json) -> impl Iterator<Item = (&String, &Json)> {
    value.as_object().into_iter().flatten()
}

#[test]
fn what_the_document_does_not_state_is_found() {
    let stated = DOCUMENT
        .pointer("/components/schemas/Error")
        .expect("the envelope");
    let error = |members: &str| -> Verdict {
        let body = format!(r#"{{"error":{{"code":"a","message":"b"{members}}}}}"#);
        fits(stated, &serde_json::from_str(&body).expect("JSON"), "")
    };
    assert_eq!(error(r#","request_id":"c""#), Ok(()));
    assert!(error("").is_err(), "a missing member");
    assert!(
        error(r#","request_id":1"#).is_err(),
        "a member of another type"
    );
    assert!(
        error(r#","request_id":"c","other":1"#).is_err(),
        "a member that is not named"
    );
    assert!(item("/agent_api/v1/executor/inbox/claims").is_some());
    assert!(item("/agent_api/v1/executor/inbox/claims/more/than/that").is_none());
}
