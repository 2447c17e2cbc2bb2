//! The variables of `nexus serve` as flags and as keys of the optional file (`operating.md` §3).
