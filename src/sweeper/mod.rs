//! sweeper.
