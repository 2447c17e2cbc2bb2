//! The conventions every door keeps (`conventions.md` §3, §4, §12, §13), seen from outside.

use nexus::domain::json::Value;
use reqwest::Method;

use crate::support::{Answer, OPERATOR, TestApp, items, text};

const ACCOUNTS: &str = "/operator_api/v1/accounts";
const ANNOUNCEMENT: &str = "/agent_api/v1/executor/announcement";

/// POST /accounts with exactly these bytes and this media type.
async fn post_bytes(app: &TestApp, media_type: &str, body: impl Into<Vec<u8>>) -> Answer {
    let call = app.request(Method::POST, ACCOUNTS, OPERATOR).bytes(body);
    let call = if media_type.is_empty() {
        call
    } else {
        call.header("content-type", media_type)
    };
    call.send().await
}

async fn accounts(app: &TestApp) -> usize {
    let body = app.get(ACCOUNTS, OPERATOR).await.ok(200);
    items(&body, "accounts").len()
}

#[tokio::test]
async fn a_wrong_verb_names_the_right_ones() {
    let app = TestApp::start().await;
    for (method, path, allow) in [
        (Method::DELETE, ACCOUNTS, "GET,HEAD,POST"),
        (Method::POST, "/agent_api/v1/executor", "GET,HEAD"),
        (Method::GET, ANNOUNCEMENT, "PUT"),
        (Method::PUT, "/livez", "GET,HEAD"),
    ] {
        let answer = app.request(method, path, OPERATOR).send().await;
        answer.expect(405, "method_not_allowed");
        let mut allowed: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{path}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_client_that_excludes_json_is_told_before_anything_happens() {
    let app = TestApp::start().await;
    for accept in ["text/html", "application/json;q=0, */*", "image/*"] {
        let call = app
            .request(Method::POST, ACCOUNTS, OPERATOR)
            .json(r#"{"name":"a"}"#);
        call.header("accept", accept)
            .send()
            .await
            .expect(406, "not_acceptable");
    }
    assert_eq!(accounts(&app).await, 0);
    for accept in ["*/*", "text/html, application/json;q=0.1", "application/*"] {
        let call = app
            .request(Method::GET, ACCOUNTS, OPERATOR)
            .header("accept", accept);
        call.send().await.ok(200);
    }
    app.finish().await;
}

#[tokio::test]
async fn bodies_are_plain_json_in_utf8() {
    let app = TestApp::start().await;
    let body = r#"{"name":"a"}"#;
    for media_type in [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/vnd.api+json",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
    ] {
        post_bytes(&app, media_type, body)
            .await
            .expect(415, "unsupported_media_type");
    }
    for encoding in ["gzip", "br", "deflate", "zstd"] {
        let call = app.request(Method::POST, ACCOUNTS, OPERATOR).json(body);
        call.header("content-encoding", encoding)
            .send()
            .await
            .expect(415, "unsupported_media_type");
    }
    assert_eq!(accounts(&app).await, 0);
    for media_type in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
    ] {
        post_bytes(&app, media_type, body).await.ok(201);
    }
    app.finish().await;
}

#[tokio::test]
async fn what_is_no_json_object_is_refused() {
    let app = TestApp::start().await;
    let nested =
        |n: usize| format!(r#"{{"name":{}{}}}"#, "[".repeat(n), "]".repeat(n)).into_bytes();
    for bad in [
        &b"{"[..],
        b"{\"name\":\"a\"",
        b"{'name':'a'}",
        b"{\"name\":\"a\",}",
        b"{\"name\":\"a\"} x",
        b"{\"name\":\"a\"}{}",
        b"\xef\xbb\xbf{\"name\":\"a\"}",
        b"{\"name\":\"\xff\"}",
        b"{\"name\":\"\\ud800\"}",
        b"{\"name\":\"\\udc00\\ud800\"}",
        b"{\"name\":\"\\ud800x\"}",
        b"{\"\\ud800\":1}",
        b"{\"name\":\"a\nb\"}",
        b"{\"name\":01}",
        b"{\"name\":NaN}",
        b"nul",
        b" ",
        b"{\"name\":\"a\"}\0",
    ] {
        let answer = post_bytes(&app, "application/json", bad).await;
        let error = answer.expect(400, "bad_request");
        assert!(text(&error, "message").contains("at byte"), "{answer:?}");
    }
    for bad in ["[]", "null", "7", "\"x\"", "true", r#"[{"name":"a"}]"#] {
        let answer = post_bytes(&app, "application/json", bad).await;
        answer.expect(400, "parameter_invalid");
    }
    for depth in [127, 128, 129, 100_000] {
        let answer = post_bytes(&app, "application/json", nested(depth)).await;
        answer.expect(400, "parameter_invalid");
    }
    assert_eq!(accounts(&app).await, 0);
    // A pair of surrogates is one character; of two equal names the last one counts (BR-056).
    let good = r#"{"name":"first","name":"\ud83d\ude00"}"#;
    let made = post_bytes(&app, "application/json", good).await.ok(201);
    assert_eq!(text(&made, "account.name"), "😀");
    app.finish().await;
}

#[tokio::test]
async fn a_missing_body_equals_an_empty_object() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let path = format!("/operator_api/v1/members/{}/rotate", f.human.id);
    app.command(&path, OPERATOR).await.ok(201);
    let plain = app
        .request(Method::POST, &path, OPERATOR)
        .header("content-type", "text/plain");
    plain.send().await.ok(201);
    app.command(ACCOUNTS, OPERATOR)
        .await
        .expect(400, "parameter_missing");
    app.request(Method::PUT, ANNOUNCEMENT, &f.runner.token)
        .send()
        .await
        .expect(400, "parameter_missing");
    app.finish().await;
}

#[tokio::test]
async fn a_body_of_more_than_2_mib_is_refused_whoever_says_its_length() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let body = |n: usize| {
        let frame = r#"{"tools":[],"more":""}"#.len();
        format!(r#"{{"tools":[],"more":"{}"}}"#, "x".repeat(n - frame))
    };
    let bound = 2 * 1024 * 1024;
    app.put(ANNOUNCEMENT, &f.runner.token, body(bound))
        .await
        .ok(200);
    app.put(ANNOUNCEMENT, &f.runner.token, body(bound + 1))
        .await
        .expect(413, "content_too_large");
    // Size comes before media type and parsing.
    let call = app
        .request(Method::PUT, ANNOUNCEMENT, &f.runner.token)
        .bytes(vec![b'x'; bound + 1]);
    call.send().await.expect(413, "content_too_large");
    app.finish().await;
}

/// §4: a client that sends first and reads then is told 413, or 401, however much it sends (up to
/// what a server takes of a body it does not want), and its connection serves the next request.
#[tokio::test]
async fn a_client_that_still_sends_gets_to_its_refusal() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let size = 24 * 1024 * 1024;
    let chunk = vec![b'x'; 64 * 1024];
    for (token, status) in [(f.runner.token.as_str(), "413"), ("nobody", "401")] {
        for chunked in [false, true] {
            let mut socket = tokio::net::TcpStream::connect(app.base.trim_start_matches("http://"))
                .await
                .unwrap();
            let length = if chunked {
                "transfer-encoding: chunked".to_owned()
            } else {
                format!("content-length: {size}")
            };
            let head = format!(
                "PUT {ANNOUNCEMENT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
                 content-type: application/json\r\n{length}\r\n\r\n"
            );
            socket.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..size / chunk.len() {
                if chunked {
                    let size = format!("{:x}\r\n", chunk.len());
                    socket.write_all(size.as_bytes()).await.unwrap();
                }
                socket.write_all(&chunk).await.expect("no reset");
                if chunked {
                    socket.write_all(b"\r\n").await.unwrap();
                }
            }
            if chunked {
                socket.write_all(b"0\r\n\r\n").await.unwrap();
            }
            socket
                .write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                .await
                .expect("the connection is still there");
            let mut answers = String::new();
            socket.read_to_string(&mut answers).await.unwrap();
            let statuses: Vec<&str> = answers
                .match_indices("HTTP/1.1 ")
                .map(|(at, start)| &answers[at + start.len()..][..3])
                .collect();
            assert_eq!(statuses, [status, "200"], "chunked: {chunked}");
        }
    }
    app.finish().await;
}

/// A stranger is refused by its head alone: no byte of its body is waited for.
#[tokio::test]
async fn authentication_comes_before_the_body() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let app = TestApp::start().await;
    let mut socket = tokio::net::TcpStream::connect(app.base.trim_start_matches("http://"))
        .await
        .unwrap();
    let head = format!(
        "PUT {ANNOUNCEMENT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9000000\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    socket.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 401");
    app.finish().await;
}

#[tokio::test]
async fn every_answer_carries_a_request_id_and_the_headers_of_an_api() {
    let app = TestApp::start().await;
    for path in [
        "/livez",
        "/readyz",
        ACCOUNTS,
        "/nowhere",
        "/agent_api/v1/executor",
    ] {
        let answer = app.get(path, OPERATOR).await;
        let id = answer.header("x-request-id");
        assert!(
            id.parse::<nexus::domain::PublicId>().is_ok(),
            "{path}: {id}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        assert!(answer.header("set-cookie").is_empty(), "{path}");
    }
    let longest = "x".repeat(128);
    for id in ["a", "A.b_c-9", &longest] {
        let call = app
            .request(Method::GET, "/nowhere", "")
            .header("x-request-id", id);
        let answer = call.send().await;
        assert_eq!(answer.header("x-request-id"), id);
        assert_eq!(text(&answer.expect(404, "not_found"), "request_id"), id);
    }
    let too_long = "x".repeat(129);
    for id in ["", "a b", "a/b", "ä", "<script>", &too_long] {
        let call = app
            .request(Method::GET, "/nowhere", "")
            .header("x-request-id", id);
        let answer = call.send().await;
        assert_ne!(answer.header("x-request-id"), id);
        answer.expect(404, "not_found");
    }
    app.finish().await;
}

#[tokio::test]
async fn an_error_says_code_message_and_request_id_and_no_raw_input() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let secret = "sk-live-0123456789";
    for answer in [
        app.post(ACCOUNTS, OPERATOR, format!(r#"{{"name":["{secret}"]}}"#))
            .await,
        app.post(ACCOUNTS, OPERATOR, format!("{{{secret}")).await,
        app.get(&format!("{ACCOUNTS}?limit={secret}"), OPERATOR)
            .await,
        app.get(&format!("{ACCOUNTS}/{secret}"), OPERATOR).await,
        app.put(
            ANNOUNCEMENT,
            &f.runner.token,
            format!(r#"{{"tools":[{{"name":"{secret} "}}]}}"#),
        )
        .await,
        app.put(
            ANNOUNCEMENT,
            &f.runner.token,
            format!(r#"{{"tools":[{{"name":"a","effect_profile":{{"kind":"{secret}"}}}}]}}"#),
        )
        .await,
        app.get(ACCOUNTS, secret).await,
    ] {
        assert!(answer.status.is_client_error(), "{answer:?}");
        assert!(!answer.text().contains(secret), "{answer:?}");
        let body = answer.json();
        let Some(Value::Object(error)) = body.get("error") else {
            panic!("{answer:?}");
        };
        for member in ["code", "message", "request_id"] {
            assert!(error.contains_key(member), "{answer:?}");
        }
    }
    app.finish().await;
}

/// A database that is away is 503 with `Retry-After`, and the server is back when it is.
#[tokio::test]
async fn a_database_that_breaks_every_connection_costs_answers_not_the_server() {
    let app = TestApp::start().await;
    app.get(ACCOUNTS, OPERATOR).await.ok(200);
    let client = app.sql().await;
    client
        .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()", &[])
        .await
        .unwrap();
    drop(client);
    for _ in 0..20 {
        let answer = app.get(ACCOUNTS, OPERATOR).await;
        if answer.status.as_u16() == 200 {
            app.finish().await;
            return;
        }
        answer.expect(503, "unavailable");
        assert_eq!(answer.header("retry-after"), "1");
    }
    panic!("the pool did not recover");
}
