//! A Redis of a test's own, and a wire to it that can be cut.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use nexus::dev::services::{self, Program, Surroundings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A server process; it ends with this value.
pub struct Redis {
    port: u16,
    process: Child,
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

async fn start(port: u16) -> Child {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = services::find(Program::Redis, &Surroundings::of_machine(root))
        .await
        .expect("a Redis or Valkey server program: `make setup` installs one");
    let process = Command::new(found.path)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        // A replica writes what its primary sends it.
        .current_dir(std::env::temp_dir())
        .args(["--dbfilename", &format!("nexus-test-{port}.rdb")])
        .args(["--repl-diskless-load", "swapdb"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the server program starts");
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    process
}

impl Redis {
    pub async fn start() -> Self {
        let port = free_port().await;
        Self {
            port,
            process: start(port).await,
        }
    }

    /// A port where a server could be, and [`Redis::start_at`] will start one.
    pub async fn nowhere() -> u16 {
        free_port().await
    }

    pub async fn start_at(port: u16) -> Self {
        Self {
            port,
            process: start(port).await,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Ends the server where it stands.
    pub async fn kill(mut self) -> u16 {
        self.process.kill().await.unwrap();
        self.port
    }
}

/// What a [`Wire`] does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// Carries them to that server.
    To(SocketAddr),
    /// Swallows them: connections stay open, nothing arrives, nothing comes back.
    Nothing,
    /// Keeps them for later.
    Later,
}

/// A TCP proxy.
pub struct Wire {
    pub port: u16,
    carry: watch::Sender<Carry>,
    connections: Arc<Mutex<JoinSet<()>>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Wire {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let carry = watch::Sender::new(Carry::To(server));
        let connections: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let accepting = tokio::spawn({
            let (carry, connections) = (carry.clone(), connections.clone());
            async move {
                while let Ok((socket, _)) = listener.accept().await {
                    let carry = carry.subscribe();
                    connections.lock().unwrap().spawn(carried(socket, carry));
                }
            }
        });
        Self {
            port,
            carry,
            connections,
            accepting,
        }
    }

    /// Connections stay as they are; their bytes go elsewhere, or nowhere.
    pub fn carry(&self, carry: Carry) {
        self.carry.send_replace(carry);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn carried(near: TcpStream, mut carry: watch::Receiver<Carry>) {
    let server = *carry
        .wait_for(|c| matches!(c, Carry::To(_)))
        .await
        .expect("the wire outlives its connections");
    let Carry::To(address) = server else {
        unreachable!("waited for")
    };
    let Ok(far) = TcpStream::connect(address).await else {
        return;
    };
    let (mut near_read, mut near_write) = near.into_split();
    let (mut far_read, mut far_write) = far.into_split();
    let there = pump(&mut near_read, &mut far_write, carry.clone());
    let back = pump(&mut far_read, &mut near_write, carry);
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

async fn pump(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    mut carry: watch::Receiver<Carry>,
) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if carry.wait_for(|c| *c != Carry::Later).await.is_err() {
            return;
        }
        // A packet that is dropped is sent again by TCP only for a while; here it is gone, which
        // is what a connection sees whose other end was replaced meanwhile.
        let carried = matches!(*carry.borrow(), Carry::To(_));
        if carried && to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
    // Half-open: nobody tells the other side.
    if *carry.borrow() == Carry::Nothing {
        std::future::pending::<()>().await;
    }
}
