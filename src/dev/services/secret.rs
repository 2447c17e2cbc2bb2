//! The password of a private service: other people on the machine can reach its port.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use super::StartError;
use super::account::write_private;

/// 128 unguessable bits, in 32 hexadecimal digits.
///
/// They come from the system, not from `engine::mint`: nothing in a simulation depends on them.
pub(super) fn mint() -> Result<String, StartError> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0_u8; 16];
    fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(StartError::io("read", source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The password kept in `path`, made at the first call.
pub(super) fn kept_in(path: &Path) -> Result<String, StartError> {
    match fs::read_to_string(path) {
        Ok(secret) if !secret.trim().is_empty() => Ok(secret.trim().to_owned()),
        Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
            Err(StartError::io("read", path)(fault))
        }
        _ => {
            let secret = mint()?;
            write_private(path, &secret)?;
            Ok(secret)
        }
    }
}
