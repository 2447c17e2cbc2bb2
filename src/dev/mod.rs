//! dev.
