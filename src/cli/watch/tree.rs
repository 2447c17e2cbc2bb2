//! Which row hangs where: a run's graph laid out as a tree. Pure.
//!
//! A task hangs below the deepest task that all its dependencies hang below (its one dependency,
//! when it has one), so every task is drawn once and never above what it waits for. A chain stays
//! on one level: a run of a hundred steps is no staircase.

use std::collections::{BTreeMap, BTreeSet};

/// One row of the drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which task, by its place in the run.
    pub task: usize,
    /// For each level above: whether that level goes on below this row.
    pub rails: Vec<bool>,
    /// Whether this row is the last of its level.
    pub last: bool,
    /// Whether its place alone says what it waits for.
    pub nested: bool,
}

/// Lays tasks out; each is a key and the keys it depends on, in authoring order. Keys that are not
/// among them, and circles (no run has any), are left out of account.
pub fn lay_out(tasks: &[(&str, &[String])]) -> Vec<Row> {
    let dependencies = dependencies(tasks);
    let parents = parents(&dependencies);
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (task, parent) in parents.iter().enumerate() {
        children.entry(*parent).or_default().push(task);
    }
    let mut rows = Vec::with_capacity(tasks.len());
    // Levels under way: what is still to be drawn on each, next one last.
    let mut levels = vec![chained(None, &children)];
    while let Some(level) = levels.last_mut() {
        let Some((task, nested)) = level.pop() else {
            levels.pop();
            continue;
        };
        let depth = levels.len();
        let rails = levels[..depth - 1].iter().map(|l| !l.is_empty()).collect();
        rows.push(Row {
            task,
            rails,
            last: levels[depth - 1].is_empty(),
            nested: nested && depth > 1 && dependencies[task].len() == 1,
        });
        if children.get(&Some(task)).is_some_and(|c| c.len() > 1) {
            levels.push(chained(Some(task), &children));
        }
    }
    rows
}

/// The rows of one level, reversed: each child of `parent`, followed by its only child, and so on.
fn chained(
    parent: Option<usize>,
    children: &BTreeMap<Option<usize>, Vec<usize>>,
) -> Vec<(usize, bool)> {
    let mut level = Vec::new();
    for child in children.get(&parent).into_iter().flatten() {
        let mut next = Some((*child, true));
        while let Some((task, nested)) = next {
            level.push((task, nested));
            next = match children.get(&Some(task)).map(Vec::as_slice) {
                Some([only]) => Some((*only, false)),
                _ => None,
            };
        }
    }
    level.reverse();
    level
}

fn dependencies(tasks: &[(&str, &[String])]) -> Vec<Vec<usize>> {
    let index: BTreeMap<&str, usize> = tasks.iter().enumerate().map(|(i, t)| (t.0, i)).collect();
    let find = |key: &String| index.get(key.as_str()).copied();
    tasks
        .iter()
        .map(|(_, after)| after.iter().filter_map(find).collect())
        .collect()
}

/// Each task's parent: the deepest common ancestor of its dependencies.
fn parents(dependencies: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut parent = vec![None; dependencies.len()];
    let mut depth = vec![1usize; dependencies.len()];
    for task in in_order(dependencies) {
        let mut heads = dependencies[task].iter().copied();
        let Some(first) = heads.next() else { continue };
        let common = heads.try_fold(first, |a, b| meet(a, b, &parent, &depth));
        parent[task] = common;
        depth[task] = common.map_or(1, |p| depth[p] + 1);
    }
    parent
}

/// The deepest task both hang below (or are).
fn meet(mut a: usize, mut b: usize, parent: &[Option<usize>], depth: &[usize]) -> Option<usize> {
    while a != b {
        let deeper = if depth[a] >= depth[b] { &mut a } else { &mut b };
        *deeper = parent[*deeper]?;
    }
    Some(a)
}

/// Dependencies first, else authoring order; what is in a circle is left out.
fn in_order(dependencies: &[Vec<usize>]) -> Vec<usize> {
    let mut waiting: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut followers = vec![Vec::new(); dependencies.len()];
    for (task, heads) in dependencies.iter().enumerate() {
        for head in heads {
            followers[*head].push(task);
        }
    }
    let free = |task: &usize| dependencies[*task].is_empty();
    let mut ready: BTreeSet<usize> = (0..dependencies.len()).filter(free).collect();
    let mut order = Vec::with_capacity(dependencies.len());
    while let Some(task) = ready.pop_first() {
        order.push(task);
        for follower in &followers[task] {
            waiting[*follower] -= 1;
            if waiting[*follower] == 0 {
                ready.insert(*follower);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws `a b>a c>a,b`: keys with what they depend on.
    fn drawn(text: &str) -> String {
        let parsed: Vec<(&str, Vec<String>)> = text
            .split(' ')
            .map(|part| {
                let (key, after) = part.split_once('>').unwrap_or((part, ""));
                let after = after.split(',').filter(|k| !k.is_empty());
                (key, after.map(str::to_owned).collect())
            })
            .collect();
        let tasks: Vec<(&str, &[String])> =
            parsed.iter().map(|(k, a)| (*k, a.as_slice())).collect();
        let line = |row: &Row| {
            let rails: String = row
                .rails
                .iter()
                .map(|on| if *on { '|' } else { ' ' })
                .collect();
            let bend = if row.last { '`' } else { '+' };
            let mark = if row.nested { "" } else { "*" };
            format!("{rails}{bend}{}{mark}", tasks[row.task].0)
        };
        lay_out(&tasks)
            .iter()
            .map(line)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_chain_stays_on_one_level() {
        assert_eq!(drawn("a b>a c>b"), "+a*\n+b*\n`c*");
    }

    #[test]
    fn a_fan_hangs_below_its_head_and_its_join_after_it() {
        assert_eq!(drawn("p a>p b>p j>a,b z>j"), "`p*\n +a\n +b\n +j*\n `z*");
    }

    #[test]
    fn roots_are_joined_at_the_root() {
        assert_eq!(drawn("a b j>a,b"), "+a*\n+b*\n`j*");
    }

    #[test]
    fn branches_of_a_fan_keep_their_own_tails() {
        let expected = "+p*\n|+a\n|+a2*\n|`b\n`q*\n +c\n `d";
        assert_eq!(drawn("p a>p a2>a b>p q c>q d>q"), expected);
    }

    #[test]
    fn a_dependency_may_be_authored_later_and_circles_do_no_harm() {
        assert_eq!(drawn("j>r2 r1 r2>r1"), "+r1*\n+r2*\n`j*");
        assert_eq!(drawn("x>y y>x a>gone"), "+x*\n+y*\n`a*");
    }
}
