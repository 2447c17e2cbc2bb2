//! A target of one's own: a private PostgreSQL with its durability on, a private Redis, and replicas of
//! `nexus serve` as processes of their own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nexus::dev::services::{Profile, RedisNeed, Services, ServicesConfig};
use tokio::process::{Child, Command};

use crate::error::Error;
use crate::world::Target;

const OPERATOR: &str = "loadtest-operator";

/// The servers. Stop them with [`Local::stop`]; dropped, they end too.
pub struct Local {
    services: Services,
    program: PathBuf,
    dir: PathBuf,
    replicas: Vec<Child>,
    /// Their base URLs.
    pub urls: Vec<String>,
}

/// The `nexus` program beside this one.
///
/// # Errors
/// [`Error::Setup`] when there is none.
pub fn beside() -> Result<PathBuf, Error> {
    let here = std::env::current_exe().map_err(Error::file(Path::new("this program")))?;
    let found = here
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("nexus"))
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        Error::Setup(
            "no `nexus` beside this program: build it in the same profile, or give --server or \
             --base-url"
                .to_owned(),
        )
    })
}

impl Local {
    /// Starts PostgreSQL and Redis below `dir`, migrates, and starts one replica. `program` is the
    /// `nexus` to run.
    ///
    /// # Errors
    /// [`Error::Services`], or a replica that does not come up.
    pub async fn start(dir: &Path, program: &Path) -> Result<Self, Error> {
        let wanted = ServicesConfig::private(dir, Profile::Dev, RedisNeed::Wanted);
        let mut local = Self {
            services: Services::start(wanted).await?,
            program: program.to_owned(),
            dir: dir.to_owned(),
            replicas: Vec::new(),
            urls: Vec::new(),
        };
        let migrated = local
            .command("migrate")
            .status()
            .await
            .map_err(Error::file(program))?;
        if !migrated.success() {
            return Err(Error::Setup("the schema could not be made".to_owned()));
        }
        local.replicate(1).await?;
        Ok(local)
    }

    /// Makes it so many replicas.
    ///
    /// # Errors
    /// A replica that does not come up.
    pub async fn replicate(&mut self, count: usize) -> Result<(), Error> {
        while self.replicas.len() > count {
            self.urls.pop();
            if let Some(mut replica) = self.replicas.pop() {
                let _ = replica.kill().await;
            }
        }
        while self.replicas.len() < count {
            let (api, admin) = (free_port()?, free_port()?);
            let number = self.replicas.len();
            let log = self.dir.join(format!("replica-{number}.log"));
            let log = std::fs::File::create(&log).map_err(Error::file(&log))?;
            let child = self
                .command("serve")
                .env("NEXUS_LISTEN", format!("127.0.0.1:{api}"))
                .env("NEXUS_ADMIN_LISTEN", format!("127.0.0.1:{admin}"))
                .stderr(log.try_clone().map_err(Error::file(&self.dir))?)
                .stdout(log)
                .spawn()
                .map_err(Error::file(&self.program))?;
            let url = format!("http://127.0.0.1:{api}");
            self.replicas.push(child);
            ready(&url).await?;
            self.urls.push(url);
        }
        Ok(())
    }

    /// The target.
    pub fn target(&self) -> Target {
        Target {
            urls: self.urls.clone(),
            operator: OPERATOR.to_owned(),
            database: Some(self.services.database_url()),
        }
    }

    /// Process ids of the replicas.
    pub fn pids(&self) -> Vec<u32> {
        self.replicas.iter().filter_map(Child::id).collect()
    }

    /// Ends everything.
    pub async fn stop(mut self) {
        let _ = self.replicate(0).await;
        self.services.stop().await;
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(verb)
            .env("NEXUS_DATABASE_URL", self.services.database_url())
            .env("NEXUS_OPERATOR_TOKEN", OPERATOR)
            .env("NEXUS_RATE_LIMITS", "off")
            .env("NEXUS_LOG", "warn")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Some(redis) = self.services.redis_url() {
            command.env("NEXUS_REDIS_URL", redis);
        }
        command
    }
}

fn free_port() -> Result<u16, Error> {
    let listener =
        std::net::TcpListener::bind("127.0.0.1:0").map_err(Error::file(Path::new("127.0.0.1")))?;
    let address = listener
        .local_addr()
        .map_err(Error::file(Path::new("127.0.0.1")))?;
    Ok(address.port())
}

async fn ready(url: &str) -> Result<(), Error> {
    let mut conn = crate::http::Conn::new(url, "-")?;
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match conn.get("/readyz").await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            _ if tokio::time::Instant::now() > patience => {
                return Err(Error::Setup(format!(
                    "the replica at {url} is not ready within 30 s"
                )));
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await, // the pace of asking
        }
    }
}
