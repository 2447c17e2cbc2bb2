//! The `nexus` binary.

fn main() -> std::process::ExitCode {
    nexus::cli::main()
}
