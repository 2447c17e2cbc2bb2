//! http.
