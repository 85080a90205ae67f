//! SVG drawings: exact steps, a title for screen readers, and colours for light and for dark pages.
//!
//! Written by hand, because a plotting library draws neither steps nor titles, and knows one theme.

use std::fmt::Write;

/// Colours by class, light and dark. The class of an element says what it shows.
const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2328}\
.small{font-size:11px;fill:#59636e}.strong{font-weight:600}.end{text-anchor:end}.middle{text-anchor:middle}\
.page{fill:#fff}.rule{stroke:#d1d9e0;fill:none}.limit{stroke:#59636e;stroke-dasharray:4 3;fill:none}\
.offered{stroke:#9aa4ae}.admitted{stroke:#0969da}.sum{stroke:#0969da;fill:none;stroke-width:1.6}\
.under,.over{shape-rendering:crispEdges}.under{fill:#ddf4ff}.over{fill:#ff8182}.first{fill:#0969da}.second{fill:#bc4c00}.third{fill:#8250df}.floor{fill:#8c959f}\
.frame{fill:none;stroke:#d1d9e0}.outage{fill:#ffebe9}.figure{font-size:30px}.line{stroke:currentColor;fill:none;stroke-width:1.5}\
.mark{fill:currentColor}.dashed{stroke:currentColor;stroke-dasharray:5 4;fill:none}.plain{color:#1f2328}\
.blue{color:#0969da}.orange{color:#bc4c00}.green{color:#1a7f37}.purple{color:#8250df}.red,.dark-red{color:#cf222e}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}\
.rule{stroke:#30363d}.limit{stroke:#9198a1}.offered{stroke:#6e7681}.admitted{stroke:#4493f8}.sum{stroke:#4493f8}\
.under{fill:#12243d}.over{fill:#b62324}.first{fill:#4493f8}.second{fill:#f0883e}.third{fill:#ab7df8}.floor{fill:#6e7681}\
.frame{stroke:#30363d}.outage{fill:#3c1618}.plain{color:#e6edf3}.blue{color:#4493f8}.orange{color:#f0883e}\
.green{color:#3fb950}.purple{color:#ab7df8}.red,.dark-red{color:#f85149}}";

/// A drawing in the making.
pub struct Drawing {
    body: String,
    size: (f64, f64),
    title: String,
}

/// A corner and a size, in pixels.
#[derive(Clone, Copy)]
pub struct Area {
    /// From the left.
    pub x: f64,
    /// From the top.
    pub y: f64,
    /// To the right.
    pub width: f64,
    /// To the bottom.
    pub height: f64,
}

impl Drawing {
    /// An empty drawing of a size. Screen readers read the title.
    pub fn new(size: (f64, f64), title: &str) -> Self {
        Self { body: String::new(), size, title: title.to_owned() }
    }

    /// Begins a part with a title of its own.
    pub fn open(&mut self, title: &str) {
        self.put(&format!("<g role=\"img\"><title>{}</title>", escaped(title)));
    }

    /// Ends a part.
    pub fn close(&mut self) {
        self.put("</g>");
    }

    /// Text whose baseline begins at a place.
    pub fn text(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = (number(at.0), number(at.1));
        self.put(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(text)));
    }

    /// A filled rectangle.
    pub fn fill(&mut self, class: &str, area: Area) {
        let [x, y, width, height] = [area.x, area.y, area.width, area.height].map(number);
        let place = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
        self.put(&format!("<rect class=\"{class}\" {place}/>"));
    }

    /// A filled circle of 5 pixels.
    pub fn dot(&mut self, class: &str, at: (f64, f64)) {
        let (x, y) = (number(at.0), number(at.1));
        self.put(&format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"5\"/>"));
    }

    /// A line of horizontal and vertical pieces, or several: SVG's path commands.
    pub fn path(&mut self, class: &str, commands: &str) {
        self.put(&format!("<path class=\"{class}\" d=\"{}\"/>", commands.trim()));
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x, y, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        self.path(class, &format!("M{x} {y}L{x2} {y2}"));
    }

    fn put(&mut self, element: &str) {
        self.body += element;
        self.body.push('\n');
    }

    /// The file.
    pub fn finish(self) -> String {
        let (width, height) = (number(self.size.0), number(self.size.1));
        let title = escaped(&self.title);
        let mut file = String::new();
        let _ = writeln!(
            file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{}</svg>",
            self.body
        );
        file
    }
}

/// A coordinate, to a tenth of a pixel.
pub fn number(at: f64) -> String {
    let text = format!("{at:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
