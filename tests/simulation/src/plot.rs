//! Draws a storm: requests per second over time, one panel for each side on the same scale, with failing requests marked.

use std::fmt::Write as _;
use std::time::Duration;

use crate::figures::Figures;
use crate::registry::{BUDGET_PER_SECOND, Request};
use crate::storm::{Storm, Traffic};

const WIDTH: usize = 960;
const PANEL_HEIGHT: usize = 190;
/// The margins; the left one has room for the numbers of the scale.
const LEFT: usize = 64;
const RIGHT: usize = 24;
const TOP: usize = 76;
const BETWEEN: usize = 58;
const BOTTOM: usize = 46;
/// The lower end of the logarithmic scale: half a decade below one request a second, so that a single request is visible.
const FLOOR: f64 = 0.3;

const STYLE: &str = "text{font:13px sans-serif;fill:#222}.title{font-size:17px;font-weight:bold}.small{font-size:11px;fill:#555}\
.grid{stroke:#ddd}.axis{stroke:#666}.all{fill:#6b9bd1}.failing{fill:#c62f2d}.trouble{fill:#f6e9d8}.budget{stroke:#1b7f4b;stroke-dasharray:6 4}";

/// One column of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Column {
    all: u64,
    failing: u64,
}

/// The scales of both axes.
struct Scale {
    end_s: f64,
    decades: u32,
}

impl Scale {
    fn x(&self, seconds: f64) -> f64 {
        LEFT as f64 + columns_wide() as f64 * (seconds / self.end_s).min(1.0)
    }

    /// The height in pixels above the foot of a panel.
    fn height(&self, per_second: f64) -> f64 {
        let share = (per_second / FLOOR).log10() / (f64::from(self.decades) - FLOOR.log10());
        PANEL_HEIGHT as f64 * share.clamp(0.0, 1.0)
    }
}

/// The whole picture as SVG.
#[must_use]
pub fn svg(storm: &Storm, traffic: &Traffic) -> String {
    let end_s = storm.minutes as f64 * 60.0;
    let peak = storm.kubelet.peak_per_second.max(storm.fleetpull.peak_per_second).max(u64::from(BUDGET_PER_SECOND));
    let scale = Scale { end_s, decades: (peak as f64).log10().ceil() as u32 };
    let height = TOP + 2 * PANEL_HEIGHT + BETWEEN + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <style>{STYLE}</style>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let title = format!("{}: {} nodes, {} min, seed {} (simulated)", storm.scenario.name(), storm.nodes, storm.minutes, storm.seed);
    text(&mut svg, LEFT as f64, 26.0, "title", &title);
    legend(&mut svg);
    let panels = [("kubelet", &storm.kubelet, &traffic.kubelet), ("fleetpull", &storm.fleetpull, &traffic.fleetpull)];
    for (number, (name, figures, requests)) in panels.into_iter().enumerate() {
        let foot = TOP + PANEL_HEIGHT + number * (PANEL_HEIGHT + BETWEEN);
        if let Some(recovers_at) = storm.scenario.recovers_at() {
            let from = scale.x(storm.scenario.breaks_at().as_secs_f64());
            let (width, top) = (scale.x(recovers_at.as_secs_f64()) - from, foot - PANEL_HEIGHT);
            line(
                &mut svg,
                &format!("<rect class=\"trouble\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{PANEL_HEIGHT}\"/>"),
            );
        }
        grid(&mut svg, &scale, foot as f64);
        bars(&mut svg, &scale, foot as f64, &columns(requests, end_s));
        text(&mut svg, LEFT as f64, (foot - PANEL_HEIGHT) as f64 - 8.0, "", &summary(name, figures));
    }
    text(
        &mut svg,
        (LEFT + columns_wide() / 2) as f64,
        height as f64 - 10.0,
        "small",
        "minutes; requests per second upwards, each step ten times the last",
    );
    svg.push_str("</svg>\n");
    svg
}

fn summary(name: &str, figures: &Figures) -> String {
    let last = figures.last_served_after_recovery_s.map(|last| format!(", last {last:.1} s after recovery")).unwrap_or_default();
    let Figures { requests, failing_requests, peak_per_second, served, .. } = figures;
    format!("{name}: {requests} requests, {failing_requests} failing, at most {peak_per_second}/s; {served} nodes served{last}")
}

fn legend(svg: &mut String) {
    let mut x = LEFT as f64;
    for (mark, words, width) in [("all", "requests", 84.0), ("failing", "failing requests", 128.0), ("trouble", "the trouble lasts", 132.0)]
    {
        line(svg, &format!("<rect class=\"{mark}\" x=\"{x}\" y=\"36\" width=\"12\" height=\"12\"/>"));
        text(svg, x + 17.0, 46.0, "small", words);
        x += width;
    }
    line(svg, &format!("<line class=\"budget\" x1=\"{x}\" y1=\"42\" x2=\"{}\" y2=\"42\"/>", x + 22.0));
    text(svg, x + 28.0, 46.0, "small", &format!("the budget, {BUDGET_PER_SECOND}/s"));
}

fn grid(svg: &mut String, scale: &Scale, foot: f64) {
    let right = LEFT + columns_wide();
    for decade in 0..=scale.decades {
        let y = foot - scale.height(10_f64.powi(i32::try_from(decade).unwrap_or(i32::MAX)));
        line(svg, &format!("<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"));
        line(
            svg,
            &format!("<text class=\"small\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>", LEFT - 6, y + 4.0, 10_u64.pow(decade)),
        );
    }
    let budget = foot - scale.height(f64::from(BUDGET_PER_SECOND));
    line(svg, &format!("<line class=\"budget\" x1=\"{LEFT}\" y1=\"{budget:.1}\" x2=\"{right}\" y2=\"{budget:.1}\"/>"));
    line(svg, &format!("<line class=\"axis\" x1=\"{LEFT}\" y1=\"{foot}\" x2=\"{right}\" y2=\"{foot}\"/>"));
    for sixth in 0..=6 {
        let seconds = scale.end_s * f64::from(sixth) / 6.0;
        let minutes = ((seconds / 6.0).round() / 10.0).to_string();
        line(
            svg,
            &format!(
                "<text class=\"small\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{minutes}</text>",
                scale.x(seconds),
                foot + 16.0
            ),
        );
    }
}

fn bars(svg: &mut String, scale: &Scale, foot: f64, columns: &[Column]) {
    for (class, of) in [("all", (|column| column.all) as fn(&Column) -> u64), ("failing", |column| column.failing)] {
        let mut path = String::new();
        for (index, column) in columns.iter().enumerate().filter(|(_, column)| of(column) > 0) {
            let height = scale.height(of(column) as f64);
            // Writing to a string cannot fail.
            let _ = write!(path, "M{} {foot}v-{height:.1}h1v{height:.1}z", LEFT + index);
        }
        line(svg, &format!("<path class=\"{class}\" d=\"{path}\"/>"));
    }
}

/// One column a pixel: the most requests, and the most failing requests, of any second in it.
fn columns(requests: &[Request], end_s: f64) -> Vec<Column> {
    let mut seconds = vec![Column::default(); (end_s.ceil() as usize).max(1)];
    for request in requests {
        if let Some(second) = seconds.get_mut(usize::try_from(request.at.as_secs()).unwrap_or(usize::MAX)) {
            second.all += 1;
            second.failing += u64::from(request.failing);
        }
    }
    let mut columns = vec![Column::default(); columns_wide()];
    for (index, second) in seconds.iter().enumerate() {
        let at = Duration::from_secs(index as u64).as_secs_f64() / end_s;
        let column = &mut columns[((at * columns_wide() as f64) as usize).min(columns_wide() - 1)];
        column.all = column.all.max(second.all);
        column.failing = column.failing.max(second.failing);
    }
    columns
}

const fn columns_wide() -> usize {
    WIDTH - LEFT - RIGHT
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    line(svg, &format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>"));
}

fn line(svg: &mut String, element: &str) {
    svg.push_str(element);
    svg.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_shows_the_highest_second_in_it() {
        let request = |second, failing| Request { at: Duration::from_secs(second), node: 0, begins: true, failing };
        let end_s = 2.0 * columns_wide() as f64;
        let columns = columns(&[request(0, true), request(1, false), request(1, false), request(2, true)], end_s);
        assert_eq!(columns[0], Column { all: 2, failing: 1 });
        assert_eq!(columns[1], Column { all: 1, failing: 1 });
        assert!(columns[2..].iter().all(|column| *column == Column::default()));
    }

    #[test]
    fn scale_shows_a_single_request_and_ends_at_the_panel() {
        let scale = Scale { end_s: 60.0, decades: 3 };
        assert!(scale.height(1.0) > 10.0 && scale.height(0.0) == 0.0);
        assert!((scale.height(1_000.0) - PANEL_HEIGHT as f64).abs() < 0.1 && scale.height(1e9) <= PANEL_HEIGHT as f64);
    }
}
