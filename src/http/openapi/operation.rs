//! One door: what it takes, what it answers, what it refuses; and what all doors have in common.
//!
//! What surrounds a handler answers too (`http::guard`, `accept`, `rate`, extractors): those
//! refusals are added here, by what the door takes, so that no table can forget them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use super::refused::{Code, Every};
use super::schema::{self, text, with};

/// Who may speak at a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// Anybody; not counted.
    Health,
    /// Anybody.
    Public,
    /// A member's bearer.
    Member,
    /// An executor's bearer.
    Executor,
    /// Either of the two.
    Either,
    /// An operator's bearer.
    Operator,
}

impl Plane {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Health, "health", "What balancers ask."),
        (Self::Public, "public", "What anybody may read."),
        (Self::Member, "member", "A human or an agent speaks."),
        (
            Self::Executor,
            "executor",
            "A delivery address speaks: it claims work and commits results.",
        ),
        (
            Self::Either,
            "cable",
            "The socket of members and executors.",
        ),
        (
            Self::Operator,
            "operator",
            "Deployment staff provisions and observes; it executes nothing.",
        ),
    ];

    fn tag(self) -> &'static str {
        let found = Self::ALL.iter().find(|(plane, ..)| *plane == self);
        found.map_or("", |(_, tag, _)| tag)
    }

    /// The bearers that open its doors.
    fn bearers(self) -> &'static [&'static str] {
        match self {
            Self::Health | Self::Public => &[],
            Self::Member => &["member"],
            Self::Executor => &["executor"],
            Self::Either => &["member", "executor"],
            Self::Operator => &["operator"],
        }
    }
}

/// The tags, one a plane.
pub fn tags() -> Json {
    let tag = |(_, name, about): (Plane, &str, &str)| json!({"name": name, "description": about});
    Plane::ALL.into_iter().map(tag).collect()
}

/// The bearers, one a plane.
pub fn security_schemes() -> Json {
    let scheme = |who: &str| {
        json!({"type": "http", "scheme": "bearer", "bearerFormat": "sk-nexus-…",
               "description": format!("A token of {who}, shown once when it was made. Of another plane it is the plain 401.")})
    };
    json!({
        "member": scheme("a member"),
        "executor": scheme("an executor"),
        "operator": scheme("an operator"),
    })
}

/// One door.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `get`, `post`, …
    pub method: &'static str,
    /// The route, as the router spells it.
    pub path: &'static str,
    id: &'static str,
    plane: Plane,
    summary: &'static str,
    parameters: Vec<Json>,
    body: Option<Json>,
    answers: BTreeMap<u16, Json>,
    refusals: BTreeMap<u16, BTreeSet<&'static str>>,
}

impl Operation {
    /// A door of that plane. Its refusals by whatever surrounds the handler are there already.
    pub fn new(
        plane: Plane,
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        let operation = Self {
            method,
            path,
            id,
            plane,
            summary,
            parameters: Vec::new(),
            body: None,
            answers: BTreeMap::new(),
            refusals: BTreeMap::new(),
        };
        let operation = operation.refuses_by(&[
            (406, "not_acceptable"),
            (414, "uri_too_long"),
            (431, "headers_too_large"),
            (500, "internal_error"),
            (503, "unavailable"),
        ]);
        let operation = match plane {
            Plane::Health => operation,
            Plane::Public | Plane::Either => operation.refuses_by(&[(429, "rate_limited")]),
            _ => operation.refuses_by(&[(401, "unauthorized"), (429, "rate_limited")]),
        };
        if path.contains('{') {
            operation.refuses_by(&[(404, "not_found")])
        } else {
            operation
        }
    }

    /// Takes a parameter of the query.
    pub fn query(mut self, name: &str, schema: Json, about: &str) -> Self {
        self.parameters
            .push(json!({"name": name, "in": "query", "schema": schema, "description": about}));
        self.refuses_by(&[(400, "bad_request"), (400, "parameter_invalid")])
    }

    /// Takes a required parameter of the query.
    pub fn required_query(self, name: &str, schema: Json, about: &str) -> Self {
        let mut operation = self.query(name, schema, about);
        if let Some(last) = operation.parameters.last_mut() {
            last["required"] = true.into();
        }
        operation.refuses_by(&[(400, "parameter_missing")])
    }

    /// Is a list of pages: `after`, `limit`, `order`.
    pub fn pages(self, default: i64, plural: &str, items: Json) -> Self {
        let page = schema::object([
            (plural, schema::list(items)),
            ("pagination", schema::of("Pagination")),
        ]);
        self.after()
            .limit(default)
            .query(
                "order",
                with(schema::words(["asc", "desc"]), "default", "asc"),
                "The direction, by age.",
            )
            .answers(200, "A page.", page)
    }

    /// Takes a cursor.
    pub fn after(self) -> Self {
        let about = "Begins behind the place of this cursor, which the same list returned.";
        self.query("after", schema::of("Cursor"), about)
    }

    /// Takes a size of pages.
    pub fn limit(self, default: i64) -> Self {
        let size = with(schema::integer(1, 200), "default", default);
        self.query("limit", size, "The most rows of a page.")
    }

    /// Takes a header.
    pub fn header(mut self, name: &str, schema: Json, about: &str) -> Self {
        self.parameters
            .push(json!({"name": name, "in": "header", "schema": schema, "description": about}));
        self
    }

    /// Takes an `Idempotency-Key` of at most so many bytes.
    pub fn key(self, bytes: u32) -> Self {
        let key =
            json!({"type": "string", "minLength": 1, "maxLength": bytes, "pattern": "^[!-~]+$"});
        self.header(
            "Idempotency-Key",
            key,
            "A repeat under this key does nothing twice.",
        )
        .refuses_by(&[(400, "parameter_invalid")])
    }

    /// Needs the proof of a claim.
    pub fn claim_token(self) -> Self {
        let token = json!({"type": "string", "minLength": 1});
        let mut operation = self.header("Claim-Token", token, "The token of the claim.");
        if let Some(last) = operation.parameters.last_mut() {
            last["required"] = true.into();
        }
        operation.refuses_by(&[(400, "parameter_missing")])
    }

    /// Takes a JSON object; without a body it is `{}`.
    pub fn json(self, schema: Json, is_required: bool, example: Json) -> Self {
        let content = json!({"application/json": {"schema": schema, "example": example}});
        self.body(content, is_required)
            .refuses_by(&[(400, "parameter_invalid")])
    }

    /// Takes a body, but nothing in it is read; what it is, is judged.
    pub fn no_members(self) -> Self {
        self.json(json!({"type": "object"}), false, json!({}))
    }

    /// Takes a body, in which every member is refused.
    pub fn empty_body(self) -> Self {
        self.json(schema::closed([]), false, json!({}))
            .refuses_by(&[(422, "unknown_fields")])
    }

    /// Takes a body of these media types.
    pub fn body(mut self, content: Json, is_required: bool) -> Self {
        self.body = Some(json!({"required": is_required, "content": content}));
        self.refuses_by(&[
            (400, "bad_request"),
            (408, "request_timeout"),
            (413, "content_too_large"),
            (415, "unsupported_media_type"),
        ])
    }

    /// Answers JSON.
    pub fn answers(self, status: u16, about: &str, schema: Json) -> Self {
        self.answers_with(
            status,
            about,
            json!({"application/json": {"schema": schema}}),
            &[],
        )
    }

    /// Answers the resource under its singular name.
    pub fn answers_one(self, status: u16, about: &str, name: &str, shape: &str) -> Self {
        self.answers(status, about, schema::object([(name, schema::of(shape))]))
    }

    /// Answers with these media types, and headers of [`headers`] that are always there.
    pub fn answers_with(
        mut self,
        status: u16,
        about: &str,
        content: Json,
        headers: &[&str],
    ) -> Self {
        let mut answer = json!({"description": about, "headers": self.common_headers()});
        for name in headers {
            answer["headers"][*name] = header(name);
        }
        if content.as_object().is_some_and(|kinds| !kinds.is_empty()) {
            answer["content"] = content;
        }
        self.answers.insert(status, answer);
        self
    }

    /// Answers without a body.
    pub fn answers_empty(self, status: u16, about: &str) -> Self {
        self.answers_with(status, about, json!({}), &[])
    }

    /// Refuses whatever that command refuses.
    pub fn refuses<R: Every>(self) -> Self {
        self.refuses_by(&R::every())
    }

    /// Refuses so.
    pub fn refuses_by(mut self, codes: &[Code]) -> Self {
        for (status, code) in codes {
            self.refusals.entry(*status).or_default().insert(code);
        }
        self
    }

    /// Refuses who reads but may not write.
    pub fn writes(self) -> Self {
        self.refuses_by(&[(403, "not_authorized")])
    }

    /// Says 503 in its own shape, beside the envelope of what surrounds it.
    pub fn unready(mut self, shape: Json) -> Self {
        self.refusals.remove(&503);
        let either = json!({"anyOf": [shape, schema::of("Error")]});
        self.answers(503, "It may not, or cannot tell.", either)
    }

    fn common_headers(&self) -> Json {
        let mut names = vec!["X-Request-Id"];
        if self.plane != Plane::Health {
            names.extend(["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]);
        }
        names
            .into_iter()
            .map(|name| (name.to_owned(), header(name)))
            .collect::<Map<_, _>>()
            .into()
    }

    /// The operation, as the document holds it.
    pub fn document(&self) -> Json {
        let mut responses: Map<String, Json> = Map::new();
        for (status, answer) in &self.answers {
            responses.insert(status.to_string(), answer.clone());
        }
        for (status, codes) in &self.refusals {
            responses.insert(status.to_string(), refusal(*status, codes));
        }
        let bearers: Vec<Json> = self
            .plane
            .bearers()
            .iter()
            .map(|b| json!({ *b: [] }))
            .collect();
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.plane.tag()],
            "summary": self.summary,
            "description": self.summary,
            "security": bearers,
            "responses": responses,
        });
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.clone().into();
        }
        if let Some(body) = &self.body {
            operation["requestBody"] = body.clone();
        }
        operation
    }
}

/// The parameters of a path, by the names that all routes use.
pub fn path_parameters(path: &str) -> Json {
    let names = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let schema = match name {
            "task" => schema::of("TaskKey"),
            "token" => json!({"type": "string", "pattern": "^[0-9A-Za-z]{16}$"}),
            _ => schema::id(),
        };
        let about = match name {
            "task" => "The task's key.".to_owned(),
            "token" => "The look-up part of the token.".to_owned(),
            other => format!("The public id of the {other}."),
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema, "description": about})
    };
    names.map(parameter).collect()
}

/// Refusals that many doors share, under one name each.
const SHARED: [(&str, u16, &[&str], &str); 11] = [
    (
        "Malformed",
        400,
        &["bad_request", "parameter_invalid"],
        "A body or parameter that cannot be read.",
    ),
    (
        "Unauthorized",
        401,
        &["unauthorized"],
        "No bearer that opens this door.",
    ),
    (
        "NotAuthorized",
        403,
        &["not_authorized"],
        "Visible, but no standing to write.",
    ),
    (
        "NotFound",
        404,
        &["not_found"],
        "Absent, deleted, foreign or impossible: one answer.",
    ),
    (
        "NotAcceptable",
        406,
        &["not_acceptable"],
        "`Accept` excludes what is answered.",
    ),
    (
        "RequestTimeout",
        408,
        &["request_timeout"],
        "The body was not received in time.",
    ),
    (
        "UriTooLong",
        414,
        &["uri_too_long"],
        "The URL has more than 8 KiB.",
    ),
    (
        "HeadersTooLarge",
        431,
        &["headers_too_large"],
        "The headers have more than 32 KiB.",
    ),
    (
        "RateLimited",
        429,
        &["rate_limited"],
        "The minute's budget is spent; nothing was done.",
    ),
    (
        "InternalError",
        500,
        &["internal_error"],
        "A fault; its detail is in the log under the request id.",
    ),
    (
        "Unavailable",
        503,
        &["unavailable"],
        "Not now; a repeat may succeed.",
    ),
];

fn refusal(status: u16, codes: &BTreeSet<&'static str>) -> Json {
    let shared = SHARED.iter().find(|(_, of, words, _)| {
        *of == status && words.iter().copied().collect::<BTreeSet<_>>() == *codes
    });
    if let Some((name, ..)) = shared {
        return json!({ "$ref": format!("#/components/responses/{name}") });
    }
    let words: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
    refused(status, &format!("Refused: {}.", words.join(", ")), codes)
}

fn refused(status: u16, about: &str, codes: &BTreeSet<&'static str>) -> Json {
    let word = json!({"properties": {"error": {"properties": {"code": {"enum": codes}}}}});
    let schema = json!({"allOf": [schema::of("Error"), word]});
    let own = match status {
        401 => &["WWW-Authenticate"][..],
        429 | 503 => &["Retry-After"],
        _ => &[],
    };
    let names = [&["X-Request-Id"][..], own].concat();
    let headers: Map<String, Json> = names.iter().map(|n| ((*n).to_owned(), header(n))).collect();
    json!({"description": about, "headers": headers, "content": {"application/json": {"schema": schema}}})
}

/// The shared refusals.
pub fn shared_answers() -> Json {
    let answer = |(name, status, codes, about): &(&str, u16, &[&'static str], &str)| {
        let codes = codes.iter().copied().collect();
        ((*name).to_owned(), refused(*status, about, &codes))
    };
    SHARED.iter().map(answer).collect::<Map<_, _>>().into()
}

fn header(name: &str) -> Json {
    json!({ "$ref": format!("#/components/headers/{name}") })
}

/// The headers of answers. A required one is there whenever the answer names it.
pub fn headers() -> Json {
    let always = |schema: Json, about: &str| json!({"schema": schema, "required": true, "description": about});
    let counted = |about: &str| json!({"schema": schema::count(), "description": about});
    json!({
        "X-Request-Id": always(
            json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}),
            "The request's own id, or a new one.",
        ),
        "RateLimit-Limit": counted("The minute's budget; absent where nothing is counted."),
        "RateLimit-Remaining": counted("What is left of it."),
        "RateLimit-Reset": counted("Seconds to the end of the minute."),
        "Retry-After": always(json!({"type": "integer", "minimum": 1}), "Whole seconds to wait."),
        "WWW-Authenticate": always(text(), "Which bearer is asked for."),
        "Idempotency-Replayed": always(
            schema::words(["true", "false"]),
            "Whether this repeats what the same key did before.",
        ),
        "ETag": always(text(), "The digest of the bytes."),
        "Accept-Ranges": always(schema::words(["bytes"]), "Ranges of bytes are served."),
        "Content-Range": always(text(), "Which bytes these are, of how many."),
        "Content-Disposition": always(text(), "The file's name; it is to be saved, not shown."),
    })
}
