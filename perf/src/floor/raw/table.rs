//! The table, a line as soon as a cell is measured.

use super::meter::Cell;
use super::Part;
use crate::measure::PERCENTILES;

const NAME_WIDTH: usize = 58;

/// Prints cells and keeps them.
pub struct Printer<'a> {
    cells: &'a mut Vec<Cell>,
}

impl<'a> Printer<'a> {
    pub fn new(part: Part, cells: &'a mut Vec<Cell>) -> Printer<'a> {
        let title = match part {
            Part::Echo => "echo: request, 64 B back",
            Part::Write => "direct write",
            Part::Send => "vectored send over loopback, the reader throws away",
            Part::Read => "direct read",
        };
        print!("\n{title:<NAME_WIDTH$}");
        for percentile in PERCENTILES {
            print!(" {:>9}", format!("p{percentile}"));
        }
        println!(
            " {:>9} {:>9} {:>8} {:>8}",
            "max us", "a second", "MB/s", "samples"
        );
        Printer { cells }
    }

    pub fn add(&mut self, cell: Cell) {
        print!("{:<NAME_WIDTH$}", cell.name);
        let told = PERCENTILES.map(|percentile| cell.latency.percentile_us(percentile));
        for us in told.into_iter().chain([cell.latency.max_us()]) {
            print!(" {:>9}", us.map_or("-".to_owned(), |us| format!("{us:.1}")));
        }
        println!(
            " {:>9.0} {:>8.1} {:>8}",
            cell.per_second(),
            cell.mb_per_second(),
            cell.latency.samples()
        );
        self.cells.push(cell);
    }

    /// Of the cell that was added last.
    pub fn last_per_second(&self) -> f64 {
        self.cells.last().map_or(0.0, Cell::per_second)
    }
}
