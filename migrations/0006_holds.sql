-- nexus: statements apart
-- Failures that may hold their run once its last free call is claimed (engine.md §7): a claim takes no
-- run lock, so the sweeper looks for runs that nobody judged. Few: a hold that stands is another
-- status. Led by a column that leads no other index, so that no other one is walked in this order.
DROP INDEX CONCURRENTLY IF EXISTS runs_unjudged;
CREATE INDEX CONCURRENTLY runs_unjudged ON runs (run_id, account_id) WHERE status = 'running' AND n_unresolved > 0;
