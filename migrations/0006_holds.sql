-- nexus: statements apart
-- Failures that may hold their run once its last free call is claimed (engine.md §7): a claim takes no
-- run lock, so the sweeper looks for runs that nobody judged. Few: a hold that stands is another
-- status. Led by a column that leads no other index, so that no other one is walked in this order.
DROP INDEX CONCURRENTLY IF EXISTS runs_unjudged;
CREATE INDEX CONCURRENTLY runs_unjudged ON runs (run_id, account_id) WHERE status = 'running' AND n_unresolved > 0;

-- The edges into a row, by expressions that no other statement has: a row's outgoing edges were read
-- along this index, the whole run's for each row, while the table was small or not analysed, since
-- it is lower than the primary key (measured: ten seconds for a chain of 10,000). The release before
-- this one reads the edges into a row along the primary key meanwhile.
DROP INDEX CONCURRENTLY IF EXISTS edges_by_head;
CREATE INDEX CONCURRENTLY edges_by_head ON edges ((account_id + 0), (run_id + 0), (to_no + 0));
DROP INDEX CONCURRENTLY IF EXISTS edges_into;
