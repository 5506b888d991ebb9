//! Whole numbers within bounds, under sums within bounds: a feasible circulation.
//!
//! Every number is the flow through an edge, every sum that of an edge further up. Sums of rows and
//! sums of columns are two trees, joined at their leaves and at their roots; so if any numbers fit
//! at all, whole ones do, and a maximal flow finds them.

use std::collections::VecDeque;

/// More than any device holds, and far from overflowing when summed.
pub(super) const UNBOUNDED: u64 = 1 << 56;

/// A network whose edges have a least and a greatest flow.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Of each node, the arcs that leave it.
    nodes: Vec<Vec<usize>>,
    /// An arc and, behind it, the one back.
    arcs: Vec<Arc>,
    /// What each node has to be given so that every edge has its least flow.
    owed: Vec<i128>,
    /// The least flow of each edge.
    least: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Arc {
    to: usize,
    room: u64,
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node(usize);

/// An edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge(usize);

impl Network {
    pub(super) fn node(&mut self) -> Node {
        self.nodes.push(Vec::new());
        self.owed.push(0);
        Node(self.nodes.len() - 1)
    }

    /// An edge with its least and greatest flow.
    pub(super) fn edge(&mut self, from: Node, to: Node, (least, most): (u64, u64)) -> Edge {
        self.owed[from.0] -= i128::from(least);
        self.owed[to.0] += i128::from(least);
        self.least.push(least);
        self.arc(from.0, to.0, most.saturating_sub(least));
        Edge(self.least.len() - 1)
    }

    fn arc(&mut self, from: usize, to: usize, room: u64) {
        for (from, to, room) in [(from, to, room), (to, from, 0)] {
            self.nodes[from].push(self.arcs.len());
            self.arcs.push(Arc { to, room });
        }
    }

    /// The flow of each edge, by [`Edge`]; `None` if no flow has all bounds.
    pub(super) fn solve(mut self) -> Option<Flow> {
        let owed = std::mem::take(&mut self.owed);
        let (source, sink) = (self.nodes.len(), self.nodes.len() + 1);
        self.nodes.extend([Vec::new(), Vec::new()]);
        let mut wanted: u128 = 0;
        for (node, owed) in owed.into_iter().enumerate() {
            let room = u64::try_from(owed.unsigned_abs()).ok()?;
            if owed > 0 {
                wanted += u128::from(room);
                self.arc(source, node, room);
            } else if owed < 0 {
                self.arc(node, sink, room);
            }
        }
        let mut given: u128 = 0;
        while let Some(levels) = self.levels(source, sink) {
            let mut next = vec![0; self.nodes.len()];
            while let Some(path) = self.path(source, sink, &levels, &mut next) {
                let room = path.iter().map(|&arc| self.arcs[arc].room).min()?;
                for arc in path {
                    self.arcs[arc].room -= room;
                    self.arcs[arc ^ 1].room += room;
                }
                given += u128::from(room);
            }
        }
        (given == wanted).then_some(Flow {
            flows: (self.least.iter().enumerate())
                .map(|(edge, least)| least + self.arcs[2 * edge + 1].room)
                .collect(),
        })
    }

    /// How far each node is from the source; `None` if the sink cannot be reached any more.
    fn levels(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.nodes.len()];
        levels[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for &arc in &self.nodes[node] {
                let Arc { to, room } = self.arcs[arc];
                if room > 0 && levels[to] == usize::MAX {
                    levels[to] = levels[node] + 1;
                    queue.push_back(to);
                }
            }
        }
        (levels[sink] < usize::MAX).then_some(levels)
    }

    /// Arcs with room from level to level, from the source to the sink.
    fn path(
        &self,
        source: usize,
        sink: usize,
        levels: &[usize],
        next: &mut [usize],
    ) -> Option<Vec<usize>> {
        let mut path: Vec<usize> = Vec::new();
        let mut node = source;
        while node != sink {
            let Some(&arc) = self.nodes[node].get(next[node]) else {
                // Nothing leads on from here.
                let last = path.pop()?;
                node = self.arcs[last ^ 1].to;
                next[node] += 1;
                continue;
            };
            let Arc { to, room } = self.arcs[arc];
            if room > 0 && levels[to] == levels[node] + 1 {
                path.push(arc);
                node = to;
            } else {
                next[node] += 1;
            }
        }
        Some(path)
    }
}

/// What flows.
#[derive(Debug)]
pub(super) struct Flow {
    flows: Vec<u64>,
}

impl Flow {
    /// Through an edge.
    pub(super) fn through(&self, edge: Edge) -> u64 {
        self.flows.get(edge.0).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A matrix with bounds for its cells, its rows and its columns.
    fn matrix(
        cells: &[Vec<(u64, u64)>],
        rows: &[(u64, u64)],
        columns: &[(u64, u64)],
    ) -> Option<Vec<Vec<u64>>> {
        let mut network = Network::default();
        let (left, right) = (network.node(), network.node());
        network.edge(right, left, (0, UNBOUNDED));
        let columns: Vec<Node> = columns
            .iter()
            .map(|&bounds| {
                let node = network.node();
                network.edge(node, right, bounds);
                node
            })
            .collect();
        let mut edges = Vec::new();
        for (cells, &bounds) in cells.iter().zip(rows) {
            let row = network.node();
            network.edge(left, row, bounds);
            let cells = cells.iter().zip(&columns);
            edges.push(
                cells
                    .map(|(&bounds, &column)| network.edge(row, column, bounds))
                    .collect::<Vec<_>>(),
            );
        }
        let flow = network.solve()?;
        let through = |edges: Vec<Edge>| edges.into_iter().map(|edge| flow.through(edge)).collect();
        Some(edges.into_iter().map(through).collect())
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(
            matrix(&[vec![(0, 3), (0, 3)]], &[(7, 9)], &[(0, 9); 2]),
            None
        );
        let found = matrix(&[vec![(0, 3), (0, 3)]], &[(6, 9)], &[(0, 9); 2]);
        assert_eq!(found, Some(vec![vec![3, 3]]));
    }

    proptest! {
        #[test]
        fn what_can_be_is_found(
            truth in proptest::collection::vec(
                proptest::collection::vec((0..1000_u64, 0..9_u64, 0..9_u64), 4), 1..6),
            below in 0..3_u64, above in 0..3_u64,
        ) {
            let around = |value: u64| (value.saturating_sub(below), value + above);
            let cells: Vec<Vec<_>> = truth.iter().map(|row| {
                row.iter().map(|&(value, less, more)| (value.saturating_sub(less), value + more)).collect()
            }).collect();
            let rows: Vec<_> = truth.iter().map(|row| around(row.iter().map(|cell| cell.0).sum())).collect();
            let columns: Vec<_> = (0..4).map(|at| around(truth.iter().map(|row| row[at].0).sum())).collect();
            let found = matrix(&cells, &rows, &columns);
            prop_assert!(found.is_some());
            let found = found.unwrap();
            let within = |value: u64, (least, most): (u64, u64)| (least..=most).contains(&value);
            for (row, bounds) in found.iter().zip(&rows) {
                prop_assert!(within(row.iter().sum(), *bounds));
            }
            for (at, bounds) in columns.iter().enumerate() {
                prop_assert!(within(found.iter().map(|row| row[at]).sum(), *bounds));
            }
            for (row, cells) in found.iter().zip(&cells) {
                for (value, bounds) in row.iter().zip(cells) {
                    prop_assert!(within(*value, *bounds));
                }
            }
        }
    }
}
