//! Keyset lists (`conventions.md` §7).

use std::collections::BTreeSet;

use nexus::domain::json::Value;

use crate::support::fixture::{create_account, create_human, create_workspace, grant};
use crate::support::{OPERATOR, TestApp, at, items, text};

/// Follows a list to its end; the words of its rows, in order.
async fn walk(app: &TestApp, path: &str, token: &str, plural: &str, word: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let body = app.get(&format!("{path}{after}"), token).await.ok(200);
        all.extend(
            items(&body, plural)
                .iter()
                .map(|row| text(row, word).to_owned()),
        );
        match at(&body, "pagination.next_after") {
            Value::Null => return all,
            next => after = format!("&after={}", next.as_str().unwrap()),
        }
    }
}

#[tokio::test]
async fn a_list_shows_each_row_once_in_both_directions() {
    let app = TestApp::start().await;
    let account = create_account(&app, "a").await;
    let other = create_account(&app, "b").await;
    let mut made = Vec::new();
    for i in 0..7 {
        made.push(create_workspace(&app, &account, &format!("w{i}")).await);
        create_workspace(&app, &other, "noise").await;
    }
    let one = format!("/operator_api/v1/workspaces?account={account}");
    for limit in [1, 2, 7, 8, 200] {
        let path = format!("{one}&limit={limit}");
        let up = walk(&app, &path, OPERATOR, "workspaces", "public_id").await;
        assert_eq!(up, made, "limit {limit}");
        let path = format!("{one}&limit={limit}&order=desc");
        let mut down = walk(&app, &path, OPERATOR, "workspaces", "public_id").await;
        down.reverse();
        assert_eq!(down, made, "limit {limit}");
    }
    let all = walk(
        &app,
        "/operator_api/v1/workspaces?limit=3",
        OPERATOR,
        "workspaces",
        "public_id",
    )
    .await;
    assert_eq!(all.len(), 14);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 14);
    let accounts = walk(
        &app,
        "/operator_api/v1/accounts?limit=1",
        OPERATOR,
        "accounts",
        "public_id",
    )
    .await;
    assert_eq!(accounts, [account, other]);
    app.finish().await;
}

#[tokio::test]
async fn a_page_that_is_exactly_full_is_the_last_one() {
    let app = TestApp::start().await;
    for name in ["a", "b"] {
        create_account(&app, name).await;
    }
    let body = app
        .get("/operator_api/v1/accounts?limit=2", OPERATOR)
        .await
        .ok(200);
    assert_eq!(items(&body, "accounts").len(), 2);
    assert!(at(&body, "pagination.next_after").is_null());
    app.finish().await;
}

#[tokio::test]
async fn every_resource_has_its_list() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    app.fixture().await;
    for (resource, word, count) in [
        ("workspaces", "name", 1),
        ("members", "handle", 2),
        ("executors", "display_name", 3),
        ("tokens", "lookup", 5),
    ] {
        let path = format!("/operator_api/v1/{resource}?account={}&limit=1", f.account);
        let one = walk(&app, &path, OPERATOR, resource, word).await;
        assert_eq!(one.len(), count, "{resource}");
        let path = format!("/operator_api/v1/{resource}?limit=1&order=desc");
        let all = walk(&app, &path, OPERATOR, resource, word).await;
        assert_eq!(all.len(), 2 * count, "{resource}");
    }
    let path = format!("/operator_api/v1/workspaces/{}/grants?limit=1", f.workspace);
    let grants = walk(&app, &path, OPERATOR, "grants", "member_public_id").await;
    assert_eq!(grants, [f.human.id, f.agent.id]);
    app.finish().await;
}

#[tokio::test]
async fn a_member_lists_the_workspaces_it_can_read_and_no_others() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let mut readable = vec![f.workspace.clone()];
    for i in 0..4 {
        let workspace = create_workspace(&app, &f.account, &format!("w{i}")).await;
        if i % 2 == 0 {
            grant(&app, &workspace, &f.human.id, "read").await;
            readable.push(workspace);
        }
    }
    let path = "/agent_api/v1/workspaces?limit=1";
    let seen = walk(&app, path, &f.human.token, "workspaces", "public_id").await;
    assert_eq!(seen, readable);
    let mut down = walk(
        &app,
        &format!("{path}&order=desc"),
        &f.human.token,
        "workspaces",
        "public_id",
    )
    .await;
    down.reverse();
    assert_eq!(down, readable);
    let agent = walk(&app, path, &f.agent.token, "workspaces", "public_id").await;
    assert_eq!(agent, [f.workspace.as_str()]);
    let stranger = create_human(&app, &f.account, "stranger").await;
    assert!(
        walk(&app, path, &stranger.token, "workspaces", "public_id")
            .await
            .is_empty()
    );
    app.finish().await;
}

#[tokio::test]
async fn bounded_integers_and_directions_are_refused_never_clamped() {
    let app = TestApp::start().await;
    for limit in [
        "0",
        "201",
        "-1",
        "+1",
        "01",
        "1.0",
        "1e2",
        "",
        " 1",
        "%31%30x",
        "99999999999999999999",
    ] {
        let error = app
            .get(
                &format!("/operator_api/v1/accounts?limit={limit}"),
                OPERATOR,
            )
            .await
            .expect(400, "parameter_invalid");
        assert_eq!(text(&error, "parameter"), "limit");
        assert_eq!(
            text(&error, "message"),
            "limit must be an integer from 1 to 200"
        );
    }
    for order in ["", "up", "ASC"] {
        let error = app
            .get(
                &format!("/operator_api/v1/accounts?order={order}"),
                OPERATOR,
            )
            .await
            .expect(400, "parameter_invalid");
        assert_eq!(text(&error, "parameter"), "order");
    }
    app.get(
        "/operator_api/v1/accounts?limit=200&order=desc&unknown=1",
        OPERATOR,
    )
    .await
    .ok(200);
    app.finish().await;
}

#[tokio::test]
async fn a_cursor_opens_only_the_list_direction_and_host_that_gave_it() {
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let other = app.fixture().await;
    let members = format!("/operator_api/v1/members?account={}&limit=1", f.account);
    let body = app.get(&members, OPERATOR).await.ok(200);
    let cursor = text(&body, "pagination.next_after").to_owned();
    assert!(!cursor.is_empty() && cursor.len() <= 512);
    app.get(&format!("{members}&after={cursor}"), OPERATOR)
        .await
        .ok(200);
    let mut cut = cursor.clone();
    cut.truncate(cursor.len() - 4);
    let long = "A".repeat(513);
    for path in [
        format!("{members}&order=desc&after={cursor}"),
        format!(
            "/operator_api/v1/members?account={}&after={cursor}",
            other.account
        ),
        format!("/operator_api/v1/members?after={cursor}"),
        format!(
            "/operator_api/v1/executors?account={}&after={cursor}",
            f.account
        ),
        format!("/operator_api/v1/accounts?after={cursor}"),
        format!(
            "/operator_api/v1/workspaces/{}/grants?after={cursor}",
            f.workspace
        ),
        format!("{members}&after={cut}"),
        format!("{members}&after={long}"),
        format!("{members}&after="),
        format!("{members}&after=7"),
        format!("{members}&after={}", f.human.id),
    ] {
        let error = app
            .get(&path, OPERATOR)
            .await
            .expect(400, "parameter_invalid");
        assert_eq!(text(&error, "parameter"), "after", "{path}");
    }
    // A member's list is bound to the member.
    let path = "/agent_api/v1/workspaces?limit=1";
    create_and_read_second(&app, &f.account, &f.human.id).await;
    let body = app.get(path, &f.human.token).await.ok(200);
    let cursor = text(&body, "pagination.next_after").to_owned();
    app.get(&format!("{path}&after={cursor}"), &f.agent.token)
        .await
        .expect(400, "parameter_invalid");
    app.finish().await;
}

async fn create_and_read_second(app: &TestApp, account: &str, human: &str) {
    let second = create_workspace(app, account, "second").await;
    grant(app, &second, human, "read").await;
}

#[tokio::test]
async fn cursors_carry_no_database_ids() {
    use base64::Engine as _;
    let app = TestApp::start().await;
    let f = app.fixture().await;
    let path = format!("/operator_api/v1/members?account={}&limit=1", f.account);
    let body = app.get(&path, OPERATOR).await.ok(200);
    let cursor = text(&body, "pagination.next_after");
    let plain = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(cursor)
        .unwrap();
    let plain = String::from_utf8(plain).unwrap();
    // Behind the version of the form.
    let plain = plain.strip_prefix("1:").unwrap();
    let without_ids = plain.replace(&f.account, "").replace(&f.human.id, "");
    assert!(!without_ids.bytes().any(|b| b.is_ascii_digit()), "{plain}");
    app.finish().await;
}
