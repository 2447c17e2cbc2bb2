//! cable.
