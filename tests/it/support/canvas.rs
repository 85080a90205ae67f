//! Common parts of drawings: ink, colours and labels.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Text.
pub const INK: RGBColor = RGBColor(50, 50, 50);

/// Frames, and parts in the background.
pub const PALE: RGBColor = RGBColor(215, 215, 215);

/// The colours of series, in order.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(38, 110, 160),
    RGBColor(205, 90, 60),
    RGBColor(70, 150, 90),
    RGBColor(140, 90, 160),
    RGBColor(190, 150, 40),
    RGBColor(90, 160, 170),
    RGBColor(150, 110, 80),
    RGBColor(120, 120, 120),
];

/// A part of an SVG file.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes text at its upper left corner, in pixels.
///
/// # Panics
/// When the file cannot be written.
pub fn label(canvas: &Canvas<'_>, text: &str, at: (i32, i32), size: i32) {
    let style = ("sans-serif", size).into_font().color(&INK);
    canvas.draw_text(text, &style, at).expect("the file can be written");
}
