//! Snapshots of the tree.

use super::*;

fn run(status: &str, tasks: &str) -> Run {
    let text = format!(
        r#"{{"public_id":"01a","status":"{status}","started_at":"2030-01-01T00:00:00Z",
            "tasks":[{tasks}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    let zero: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    crate::domain::time::plus_ms(zero, seconds * 1000)
}

fn task(key: &str, status: &str, more: &str) -> String {
    format!(r#"{{"key":"{key}","kind":"tool_task","status":"{status}"{more}}}"#)
}

fn demo() -> Run {
    let started = r#","started_at":"2030-01-01T00:00:01Z""#;
    let held = r#","claimed_by":{"executor_public_id":"x"}"#;
    let after = r#","after":["echo","add","slow","bad"]"#;
    let failed = r#","completed_at":"2030-01-01T00:00:02Z","error":{"key":"tool_failed","detail":"no\u001b[2Jway"}"#;
    let done = r#","completed_at":"2030-01-01T00:00:04Z""#;
    let rows = [
        task("echo", "completed", &format!(r#","tool_name":"echo"{started}{done}"#)),
        task("add", "completed", &format!(r#","tool_name":"add","is_error":true{started}{done}"#)),
        task("slow", "dispatched", &format!(r#","tool_name":"sleep"{started}{held}"#)),
        task("bad", "failed", &format!(r#","tool_name":"fail"{started}{failed}"#)),
        task("park", "dispatched", &format!(r#","tool_name":"add"{started}"#)),
        task("sum", "waiting", &format!(r#","tool_name":"add"{after}"#)),
        task("left", "needs_approval", r#","tool_name":"write_note","after":["sum"]"#),
        task("right", "hibernating", r#","after":["sum"]"#),
        r#"{"key":"say","kind":"model_task","status":"waiting","model":"dev/sim","after":["left","right"]}"#
            .to_owned(),
    ];
    run("running", &rows.join(","))
}

fn knowing(progress: &[(&str, &str)]) -> Known {
    let pair = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    Known {
        progress: progress.iter().map(pair).collect(),
        ..Known::default()
    }
}

#[test]
fn the_tree_shows_state_tool_time_error_and_progress() {
    let known = knowing(&[("slow", "10 %\n\u{1b}[31m42 %\u{7}\n\n"), ("bad", "stale")]);
    let text = render(&demo(), &known, at(75), Look::PLAIN);
    insta::assert_snapshot!(text, @r"
    run 01a  running  1m15s  3/9 settled
    ├─ ✔ echo  echo  3s
    ├─ ✔ add  add  3s  answered an error
    ├─ ● slow  sleep  1m14s  [31m42 %
    ├─ ✖ bad  fail  1s  tool_failed: no [2Jway
    ├─ ◌ park  add  1m14s  unclaimed
    └─ ○ sum  add  ⟵ echo, add, slow +1
       ├─ ◆ left  write_note  needs approval
       ├─ · right  tool  hibernating
       └─ ○ say  dev/sim  ⟵ left, right
    ◆ left asks to call write_note
        nexus runs approve 01a left
        nexus runs deny 01a left --reason TEXT
    ");
}

#[test]
fn a_held_run_says_what_it_waits_for() {
    let mut run = run("needs_attention", &task("a", "uncertain", ""));
    run.attention = serde_json::from_str(
        r#"{"reason":"halt_failure","blocked_task_keys":["a","b"],"blocked_task_overflow":3}"#,
    )
    .unwrap();
    insta::assert_snapshot!(render(&run, &Known::default(), at(1), Look::PLAIN), @r"
    run 01a  needs_attention  1s  1/1 settled
    └─ ‼ a  tool
    waits for a person: halt_failure  a, b and 3 more
    ✖ a holds the run
        nexus runs retry 01a a
        nexus runs abandon 01a a
    ✖ b holds the run
        nexus runs retry 01a b
        nexus runs abandon 01a b
    ");
}

#[test]
fn rows_are_cut_to_the_width_by_columns_and_colours_do_not_count() {
    let run = run("running", &task("k", "dispatched", r#","tool_name":"t""#));
    let known = knowing(&[("k", "進捗進捗進捗進捗")]);
    let look = |color| Look {
        color,
        width: 30,
        height: 10,
    };
    let plain = render(&run, &known, at(1), look(false));
    for line in plain.lines() {
        assert!(columns(line) <= 30, "{line}");
    }
    let mut colored = render(&run, &known, at(1), look(true));
    assert!(colored.contains("\x1b[36m"));
    for code in [0, 1, 2, 31, 32, 33, 36] {
        colored = colored.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(colored, plain);
    insta::assert_snapshot!(plain, @r"
    run 01a  running  1s  0/1 set…
    └─ ◌ k  t  unclaimed  進捗進…
    ");
}

#[test]
fn a_tall_run_folds_what_is_quiet_and_keeps_what_is_not() {
    let mut rows = Vec::new();
    for n in 0..1_000 {
        rows.push(task(&format!("done{n}"), "completed", ""));
    }
    rows.push(task("bad", "failed", ""));
    rows.push(task("live", "running", ""));
    for n in 0..1_000 {
        rows.push(task(&format!("wait{n}"), "waiting", ""));
    }
    let run = run("running", &rows.join(","));
    let look = Look {
        height: 8,
        ..Look::PLAIN
    };
    insta::assert_snapshot!(render(&run, &Known::default(), at(1), look), @r"
    run 01a  running  1s  1001/2002 settled
    ⋮  1000 more
    ├─ ✖ bad  tool
    ├─ ● live  tool
    ⋮  1000 more
    ");
    let tiny = Look { height: 3, ..look };
    assert_eq!(
        render(&run, &Known::default(), at(1), tiny).lines().count(),
        3
    );
}

#[test]
fn changes_are_a_line_each_and_only_what_changed() {
    let before = demo();
    let mut after = demo();
    after.tasks[2].status = TaskStatus::Completed;
    after.tasks[2].completed_at = Some(at(8));
    after.status = RunStatus::Completed;
    after.completed_at = Some(at(9));
    assert_eq!(
        changes(Some(&before), &before, &Known::default(), at(5)),
        Vec::<String>::new()
    );
    assert_eq!(
        changes(Some(&before), &after, &Known::default(), at(100)),
        [
            "slow sleep  completed  7s",
            "run 01a  completed  9s  4/9 settled"
        ]
    );
    assert_eq!(
        changes(None, &before, &Known::default(), at(5)).len(),
        before.tasks.len() + 1
    );
}

#[test]
fn times_are_short_and_never_negative() {
    assert_eq!(elapsed(at(10), at(3)), "0s");
    assert_eq!(elapsed(at(0), at(59)), "59s");
    assert_eq!(elapsed(at(0), at(125)), "2m05s");
    assert_eq!(elapsed(at(0), at(3_725)), "1h02m");
}

/// `operating.md` §2: the live tree shows what waits for a person, a barrier's selection, clocks.
#[test]
fn races_questions_approvals_and_clocks_are_shown() {
    let deadline = r#","deadline_at":"2030-01-01T00:01:30Z""#;
    let lost = r#","tool_name":"sleep","error":{"key":"join_loser_canceled"}"#;
    let won = r#","after":["hare","tortoise"],
        "result":{"joined":"any","outcomes":{"hare":"completed"},"selected":["hare"]}"#;
    let join = |key: &str, status: &str, more: &str| {
        format!(r#"{{"key":"{key}","kind":"join_task","status":"{status}"{more}}}"#)
    };
    let rows = [
        task("hare", "completed", r#","tool_name":"sleep""#),
        task("tortoise", "canceled", lost),
        join("race", "completed", won),
        join("vote", "waiting", r#","after":["a","b","c"]"#),
        format!(r#"{{"key":"gate","kind":"await_task","status":"dispatched"{deadline}}}"#),
        r#"{"key":"idle","kind":"await_task","status":"dispatched"}"#.to_owned(),
        task(
            "note",
            "needs_approval",
            &format!(r#","tool_name":"write_note"{deadline}"#),
        ),
    ];
    let mut run = run("running", &rows.join(","));
    let question = Question {
        prompt: "Go\u{1b}[2J?".to_owned(),
        options: vec!["yes".to_owned(), "no".to_owned()],
    };
    let terms = |until: &str, losers: &str| JoinTerms {
        until: crate::domain::json::parse(until.as_bytes()).unwrap(),
        losers: Some(losers.to_owned()),
    };
    let known = Known {
        questions: [
            ("gate".to_owned(), Some(question)),
            ("idle".to_owned(), None),
        ]
        .into(),
        terms: [
            ("race".to_owned(), terms("\"any\"", "cancel")),
            ("vote".to_owned(), terms("2", "run_out")),
        ]
        .into(),
        tokens: [("gate".to_owned(), "t1".to_owned())].into(),
        ..Known::default()
    };
    let look = Look {
        width: 60,
        ..Look::PLAIN
    };
    insta::assert_snapshot!(render(&run, &known, at(20), look), @r"
    run 01a  running  20s  3/7 settled
    ├─ ✔ hare  sleep
    ├─ ⊘ tortoise  sleep  join_loser_canceled
    ├─ ✔ race  race for 1 of 2  hare wins  ⟵ hare, tortoise
    ├─ ○ vote  race for 2 of 3, losers run out  ⟵ a, b, c
    ├─ ? gate  question  1m10s left
    ├─ ? idle  wait
    └─ ◆ note  write_note  needs approval  1m10s left
    ? gate asks: Go [2J?  (yes / no)
        nexus runs answer 01a gate TEXT --resolution-token t1
    ◆ note asks to call write_note
        nexus runs approve 01a note
        nexus runs deny 01a note --reason TEXT
    ");
    run.status = RunStatus::Paused;
    run.paused_at = Some(at(15));
    insta::assert_snapshot!(render(&run, &known, at(20), look), @r"
    run 01a  paused  20s  for 5s, clocks stand  3/7 settled
    ├─ ✔ hare  sleep
    ├─ ⊘ tortoise  sleep  join_loser_canceled
    ├─ ✔ race  race for 1 of 2  hare wins  ⟵ hare, tortoise
    ├─ ○ vote  race for 2 of 3, losers run out  ⟵ a, b, c
    ├─ ? gate  question
    ├─ ? idle  wait
    └─ ◆ note  write_note  needs approval
    ? gate asks: Go [2J?  (yes / no)
        nexus runs answer 01a gate TEXT --resolution-token t1
    ◆ note asks to call write_note
        nexus runs approve 01a note
        nexus runs deny 01a note --reason TEXT
    ‖ the run is paused
        nexus runs resume 01a
    ");
}
