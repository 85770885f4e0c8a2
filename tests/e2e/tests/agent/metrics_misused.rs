//! Too many scrapers, too frequent scrapes, clients that are no scrapers, and addresses that cannot be served.
#![allow(clippy::print_stderr, reason = "figures, for readers of the log")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use e2e::{Agent, Registry, Watch, Workplace, http_get, http_send, until};
use memory_registry::MadeImage;

/// How many clients scrape, and how often each does.
const CLIENTS: usize = 50;
const EVERY: Duration = Duration::from_millis(10);
/// How long they scrape.
const FOR: Duration = Duration::from_secs(3);
/// The most processor time that the scrapes may take, as a share of one core: the rest is for pulls.
const MOST_OF_A_CORE: f64 = 0.25;
/// Clock ticks per second, the unit of Linux's processor times.
const TICKS_PER_SECOND: f64 = 100.0;

fn scraped() -> Workplace {
    Workplace::new().with("FLEETPULL_METRICS_ADDRESS", "127.0.0.1:0")
}

/// The processor time of a process, in seconds.
fn core_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let after_name: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: f64 = after_name[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / TICKS_PER_SECOND
}

/// Scrapes until `over` is set; counts the complete answers.
fn scrape(address: SocketAddr, over: &AtomicBool, answered: &AtomicU64) {
    while !over.load(Ordering::Relaxed) {
        let watch = Watch::start();
        let answer = http_get(address, "/metrics", "application/openmetrics-text");
        assert!(answer.status == 200 && answer.body.ends_with("# EOF\n"), "{answer:?}");
        answered.fetch_add(1, Ordering::Relaxed);
        if watch.elapsed() < EVERY {
            watch.until(EVERY);
        }
    }
}

#[test]
fn fifty_clients_that_scrape_every_ten_milliseconds_leave_pulls_their_core() {
    let (registry, place) = (Registry::new(), scraped());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agent = Agent::start(&place, "n1", &[]).ready();
    let image = registry.image("shop/web:v1");
    let pull = || agent.asked(&["pull", "--node", "n1", "-o", "json", &image]).expect(0).object();
    assert_eq!(pull()["outcome"], "pulled");
    let (address, over, answered) = (agent.http(), AtomicBool::new(false), AtomicU64::new(0));
    let (before, watch) = (core_seconds(agent.id()), Watch::start());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| scrape(address, &over, &answered));
        }
        until("some were answered", || (answered.load(Ordering::Relaxed) > CLIENTS as u64).then_some(()));
        assert_eq!(pull()["outcome"], "present", "pulls are answered meanwhile");
        watch.until(FOR);
        over.store(true, Ordering::Relaxed);
    });
    let (took, answered) = (core_seconds(agent.id()) - before, answered.into_inner());
    let (share, each) = (took / watch.elapsed().as_secs_f64(), took / answered as f64);
    eprintln!("metrics: {answered} scrapes of {CLIENTS} clients, {:.0} us of a core each, {share:.3} of a core in all", each * 1e6);
    assert!(share < MOST_OF_A_CORE, "{share:.3} of a core");
}

#[test]
fn clients_that_send_nothing_do_not_keep_scrapers_out() {
    let (agent_of, place) = ("n1", scraped());
    let agent = Agent::start(&place, agent_of, &[]).ready();
    // Fewer connections than the limit: a scraper is still served.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(agent.http()).unwrap()).collect();
    assert!(agent.metrics().ends_with("# EOF\n"));
    // More connections than the limit: silent ones are closed after a while, and then the scraper is served.
    let more: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(agent.http()).unwrap()).collect();
    assert!(agent.metrics().ends_with("# EOF\n"));
    drop((silent, more));
}

#[test]
fn malformed_http_request_is_refused_and_metrics_still_answer() {
    let place = scraped();
    let agent = Agent::start(&place, "n1", &[]).ready();
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000));
    for nonsense in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        long.as_bytes(),
        b"\0\0\0\0\r\n\r\n",
    ] {
        let answer = http_send(agent.http(), nonsense);
        assert!(answer.as_ref().is_none_or(|answer| (400..500).contains(&answer.status)), "{answer:?}");
    }
    for (request, status, expected) in [
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 405, "only GET and HEAD"),
        ("DELETE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, "only GET and HEAD"),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, "/readyz?verbose"),
        ("GET /metrics/../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, "/metrics"),
    ] {
        let answer = http_send(agent.http(), request.as_bytes()).unwrap();
        assert!(answer.status == status && answer.body.contains(expected), "{request}: {answer:?}");
    }
    // One client disconnects in the middle of its request, and one in the middle of the answer.
    let mut half = TcpStream::connect(agent.http()).unwrap();
    half.write_all(b"GET /metr").unwrap();
    drop(half);
    let mut rude = TcpStream::connect(agent.http()).unwrap();
    rude.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    rude.read_exact(&mut [0; 10]).unwrap();
    drop(rude);
    assert_eq!(http_get(agent.http(), "/livez", "*/*").status, 200);
    assert_eq!(agent.state(), "ok");
}

#[test]
fn an_address_that_cannot_be_served_is_reported_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (set, status, expected) in [
        (address.as_str(), 1, ["metrics.address", "in use", "FLEETPULL_METRICS_ADDRESS"]),
        ("192.0.2.1:9464", 1, ["metrics.address", "192.0.2.1:9464", "choose another"]),
        (":9464", 2, ["metrics.address", "127.0.0.1:9464", "FLEETPULL_METRICS_ADDRESS"]),
        ("localhost:9464", 2, ["metrics.address", "an IP address and a port", "FLEETPULL_METRICS_ADDRESS"]),
        ("nonsense", 2, ["metrics.address", "an IP address and a port", "FLEETPULL_METRICS_ADDRESS"]),
        ("127.0.0.1:70000", 2, ["metrics.address", "an IP address and a port", "FLEETPULL_METRICS_ADDRESS"]),
    ] {
        let place = Workplace::new().with("FLEETPULL_METRICS_ADDRESS", set);
        let done = place.run(&["run", "--node", "n1", "--store", "store"]).expect(status);
        assert!(expected.iter().all(|part| done.stderr.contains(part)), "{expected:?} in {done}");
    }
}

#[test]
fn without_an_address_nothing_listens() {
    let place = Workplace::new();
    let agent = Agent::start(&place, "n1", &[]).ready();
    let log = agent.log_with("the agent has started");
    assert!(!log.contains("metrics"), "{log}");
    let table = |protocol: &str| std::fs::read_to_string(format!("/proc/{}/net/{protocol}", agent.id()));
    // A kernel without IPv6 has no second table.
    let listening = table("tcp").unwrap() + &table("tcp6").unwrap_or_default();
    let sockets =
        std::fs::read_dir(format!("/proc/{}/fd", agent.id())).unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let inodes: Vec<String> =
        sockets.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())).collect();
    assert!(!inodes.is_empty(), "its own socket is among them");
    let its_own = |line: &&str| line.split_whitespace().nth(9).is_some_and(|inode| inodes.iter().any(|own| own == inode));
    assert_eq!(listening.lines().skip(1).filter(its_own).count(), 0, "{listening}");
}
