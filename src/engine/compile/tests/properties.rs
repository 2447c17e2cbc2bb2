//! Random envelopes: whatever is written, the invariants of the module hold.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::domain::json::Object;
use crate::domain::steps::Refusal;
use crate::domain::words::{Mark, TaskKind};

/// A step before its names are chosen.
#[derive(Debug, Clone)]
enum Plan {
    Leaf {
        verb: usize,
        keyed: bool,
        detached: bool,
        after: Vec<Index>,
        results: Vec<Index>,
    },
    Group {
        members: Vec<Vec<Plan>>,
        until: u8,
        keyed: bool,
    },
}

fn plan() -> impl Strategy<Value = Plan> {
    let names = || prop::collection::vec(any::<Index>(), 0..4);
    let leaf = (
        0..4usize,
        any::<bool>(),
        prop::bool::weighted(0.15),
        names(),
        names(),
    )
        .prop_map(|(verb, keyed, detached, after, results)| Plan::Leaf {
            verb,
            keyed,
            detached,
            after,
            results,
        });
    leaf.prop_recursive(4, 40, 5, |inner| {
        let members = prop::collection::vec(prop::collection::vec(inner, 1..4), 1..5);
        (members, 0..4u8, any::<bool>()).prop_map(|(members, until, keyed)| Plan::Group {
            members,
            until,
            keyed,
        })
    })
}

/// Writes a plan as JSON. `honest` names only what was placed before; otherwise anything.
struct Writer {
    honest: bool,
    keys: usize,
    named: Vec<String>,
}

impl Writer {
    fn key(&mut self) -> String {
        self.keys += 1;
        format!("k{}", self.keys)
    }

    fn steps(&mut self, plans: &[Plan]) -> Vec<Value> {
        plans.iter().map(|plan| self.step(plan)).collect()
    }

    fn step(&mut self, plan: &Plan) -> Value {
        match plan {
            Plan::Leaf {
                verb,
                keyed,
                detached,
                after,
                results,
            } => self.leaf(*verb, *keyed, *detached, after, results),
            Plan::Group {
                members,
                until,
                keyed,
            } => self.group(members, *until, *keyed),
        }
    }

    fn leaf(
        &mut self,
        verb: usize,
        keyed: bool,
        detached: bool,
        after: &[Index],
        results: &[Index],
    ) -> Value {
        let (word, mut members) = match verb {
            0 => ("tool", vec![("name", Value::from("t"))]),
            1 => {
                let selector = Value::from([("model", "dev/m1".into())]);
                ("model", vec![("model", selector), ("prompt", "p".into())])
            }
            2 => ("ask", vec![("prompt", "p".into())]),
            _ => ("wait", vec![("task", "rN".into())]),
        };
        let after = self.names(after);
        let results = self.names(results);
        members.push(("after", after));
        if word == "model" {
            members.push(("results", results));
        }
        if detached {
            members.push(("detached", true.into()));
        }
        if keyed {
            let key = self.key();
            members.push(("key", key.as_str().into()));
            self.named.push(key);
        }
        let members: Object = members
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v))
            .collect();
        Value::from([(word, Value::Object(members))])
    }

    fn names(&self, picks: &[Index]) -> Value {
        let mut names = vec!["rN".to_owned()];
        names.extend(self.named.iter().cloned());
        if !self.honest {
            names.extend(["nobody".to_owned(), format!("k{}", self.keys + 2)]);
        }
        let mut picked: Vec<String> = picks.iter().map(|pick| pick.get(&names).clone()).collect();
        if self.honest {
            let mut seen = BTreeSet::new();
            picked.retain(|name| seen.insert(name.clone()));
        }
        Value::Array(picked.into_iter().map(Value::from).collect())
    }

    fn group(&mut self, members: &[Vec<Plan>], until: u8, keyed: bool) -> Value {
        let mut parallel = Vec::new();
        for member in members {
            let mut steps = self.steps(member);
            parallel.push(match steps.len() {
                1 => steps.remove(0),
                _ => Value::Array(steps),
            });
        }
        let mut options = Object::new();
        options.insert("parallel".into(), parallel.into());
        match until {
            0 => {}
            1 => drop(options.insert("until".into(), "any".into())),
            k => drop(options.insert("until".into(), Value::from(i64::from(k) - 1))),
        }
        if until > 0 && keyed {
            let key = self.key();
            options.insert("key".into(), key.as_str().into());
            self.named.push(key);
        }
        Value::Object(options)
    }
}

fn written(plans: &[Plan], honest: bool) -> Value {
    let mut writer = Writer {
        honest,
        keys: 0,
        named: Vec::new(),
    };
    Value::Array(writer.steps(plans))
}

fn check_invariants(compiled: &Compiled, facts: &Facts, leaves: usize) {
    let bounds = facts.bounds();
    let mut keys = BTreeSet::new();
    let joins = compiled
        .rows
        .iter()
        .filter(|row| row.kind == TaskKind::Join);
    assert_eq!(compiled.rows.len(), leaves + joins.count());
    assert!(leaves <= bounds.steps);
    for (i, row) in compiled.rows.iter().enumerate() {
        assert!(keys.insert(&row.key), "unique keys");
        assert!(!facts.taken.contains(&row.key), "free keys");
        let back = |r: &Ref| match r {
            Ref::New(from) => *from < i,
            Ref::Existing(task) => *task == TaskNo(7),
        };
        let froms: BTreeSet<Ref> = row.edges.iter().map(|edge| edge.from).collect();
        assert_eq!(froms.len(), row.edges.len(), "one edge a pair");
        assert!(froms.iter().all(back), "edges point backwards");
        assert!(
            row.input_from.iter().chain(&row.result_from).all(back),
            "so do reads"
        );
        assert!(
            row.result_from.iter().all(|r| froms.contains(r)),
            "what is read is waited for"
        );
        assert!(row.edges.len() <= bounds.dependencies);
        assert!(row.input_from.len() <= 1);
        assert!(row.input_from.len() + row.result_from.len() <= bounds.reads);
        assert!(row.input_from.is_empty() || row.mark == Some(Mark::Round));
        assert!(!(row.detached && row.mark == Some(Mark::Round)));
        for read in &row.input_from {
            if let Ref::New(from) = read {
                assert_eq!(
                    compiled.rows[*from].mark,
                    Some(Mark::Round),
                    "a round is continued"
                );
            }
        }
        if let Some(barrier) = row.barrier {
            assert!(barrier > i && compiled.rows[barrier].kind == TaskKind::Join);
            assert!(!row.detached);
        }
        if let Work::Join(join) = &row.work {
            assert!(join.k >= 1 && join.k <= row.edges.len());
            assert!(row.edges.iter().all(|edge| edge.structural));
        }
    }
    for tip in [compiled.answer, compiled.mainline].into_iter().flatten() {
        assert!(!compiled.rows[tip].detached);
    }
    if let Some(answer) = compiled.answer {
        let waited = |row: &Row| {
            row.edges
                .iter()
                .any(|e| e.structural && e.from == Ref::New(answer))
        };
        let follower = compiled.rows.iter().find(|row| waited(row));
        assert!(
            follower.is_none_or(|row| row.detached),
            "nothing attached follows the answer"
        );
    } else {
        assert!(compiled.rows.iter().all(|row| row.detached));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_honest_envelope_keeps_the_invariants(
        plans in prop::collection::vec(plan(), 1..9),
        follower in any::<bool>(),
    ) {
        let mut plans = plans;
        if follower {
            plans.push(Plan::Leaf {
                verb: 1, keyed: false, detached: false, after: vec![], results: vec![],
            });
        }
        let steps = written(&plans, true);
        let facts = after_r_n();
        let envelope = Envelope::read(&steps).unwrap();
        let first = compile(&envelope, &facts);
        prop_assert_eq!(&first, &compile(&envelope, &facts), "deterministic");
        match first {
            Ok(compiled) => check_invariants(&compiled, &facts, envelope.leaves()),
            Err(Refusal::InvalidSteps(errors)) => {
                let allowed = [
                    "too_many_steps", "too_wide_a_fan", "too_many_dependencies",
                    "unsatisfiable_until", "fan_needs_follower",
                ];
                for error in errors {
                    prop_assert!(allowed.contains(&error.code.code()), "{:?}", error);
                    if follower {
                        prop_assert!(error.code.code() != "fan_needs_follower");
                    }
                }
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_dishonest_envelope_compiles_whole_or_is_refused_with_reasons(
        plans in prop::collection::vec(plan(), 1..9),
    ) {
        let steps = written(&plans, false);
        let facts = after_r_n();
        match compiled(&steps, &facts) {
            Ok(compiled) => {
                let leaves = Envelope::read(&steps).unwrap().leaves();
                check_invariants(&compiled, &facts, leaves);
            }
            Err(Refusal::InvalidSteps(errors)) => {
                let paths: Vec<_> = errors.iter().map(|e| e.path.clone()).collect();
                let distinct: BTreeSet<_> = paths.iter().collect();
                prop_assert!(!paths.is_empty());
                prop_assert_eq!(distinct.len(), paths.len());
            }
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn nothing_a_client_sends_panics(steps in anything()) {
        let _ = compiled(&steps, &create());
        let _ = compiled(&steps, &after_r_n());
    }
}

#[test]
fn the_honest_generator_reaches_what_it_is_for() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let plans = prop::collection::vec(plan(), 1..5);
    let (mut accepted, mut nested) = (0, 0);
    for _ in 0..300 {
        let plans = plans.new_tree(&mut runner).unwrap().current();
        let Ok(compiled) = compiled(&written(&plans, true), &after_r_n()) else {
            continue;
        };
        accepted += 1;
        let inner = |row: &Row| row.kind == TaskKind::Join && row.barrier.is_some();
        nested += usize::from(compiled.rows.iter().any(inner));
    }
    assert!(
        accepted >= 75 && nested >= 10,
        "{accepted} accepted, {nested} with nested races"
    );
}

/// JSON that looks a little like steps.
fn anything() -> impl Strategy<Value = Value> {
    let word = || {
        prop::sample::select(vec![
            "tool",
            "model",
            "ask",
            "wait",
            "parallel",
            "key",
            "name",
            "input",
            "route",
            "prompt",
            "after",
            "results",
            "until",
            "any",
            "losers",
            "tools",
            "alias",
            "of",
            "params",
            "to",
            "compaction",
            "mode",
            "kind",
            "runner",
            "fallback_models",
            "model_defaults",
            "dev/m1",
            "task",
            "options",
            "attachments",
            "x",
            "\0",
            "",
        ])
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::Float),
        word().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(7, 96, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((word(), inner), 0..5).prop_map(|members| {
                let members = members.into_iter().map(|(k, v)| (k.to_owned(), v));
                Value::Object(members.collect())
            }),
        ]
    });
    prop_oneof![
        value.clone(),
        prop::collection::vec(value, 1..4).prop_map(Value::Array),
    ]
}
