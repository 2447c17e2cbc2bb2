//! The npm package `@stoplight/spectral-cli` reads the OpenAPI document: not a warning.

use std::path::Path;

use tokio::process::Command;

#[tokio::test]
async fn the_document_has_nothing_to_complain_of() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = root.join("node_modules/.bin/spectral");
    assert!(
        program.exists(),
        "the npm package @stoplight/spectral-cli is missing: run `make setup-node`"
    );
    let name = format!("nexus-openapi-{}.json", std::process::id());
    let document = std::env::temp_dir().join(name);
    std::fs::write(&document, nexus::http::openapi::text()).unwrap();
    let output = Command::new(program)
        .current_dir(root)
        .arg("lint")
        .arg(&document)
        .args(["--ruleset", "tests/foreign/openapi/ruleset.yaml"])
        .args(["--fail-severity", "warn"])
        .output()
        .await
        .expect("spectral starts");
    std::fs::remove_file(&document).unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{failed}");
}
