//! Reads the fields of one limit and combines them.

use super::super::errors::{Message, Report, quoted};
use super::super::fields::{Fields, Given, Reported};
use super::super::names::not_one_of;
use crate::limit::LOG_RECORDS_BOUNDED;
use crate::limit::{Algorithm, Limit, LimitError, LimitSpec, PERIOD_MAX_MS, SUB_WINDOWS_MAX};
use crate::period::{self, Unit};

/// Reads all fields before returning, so that the mistakes of all are reported.
pub(super) fn read(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Result<Limit, Reported> {
    let hits = hits(fields, report);
    let period_ms = period(fields, report);
    let algorithm = algorithm(fields, report);
    let burst = fields.whole("burst", report);
    let sub_windows = sub_windows(fields, report);
    let weighted = fields.flag("weighted", report);
    let overdraft = fields.flag("overdraft", report);
    let own = algorithm.and_then(|algorithm| refuse_foreign(fields, algorithm, report));
    let spec = LimitSpec {
        algorithm: algorithm?,
        hits: hits?,
        period_ms: period_ms?,
        burst: burst?,
        sub_windows: sub_windows?,
        weighted: weighted?,
        overdraft: overdraft?.unwrap_or(false),
    };
    own?;
    let limit = Limit::new(&spec).map_err(|error| refuse_limit(fields, &error, report))?;
    if spec.burst == Some(0) && spec.hits > 0 {
        let text = "burst 0 admits no hit at any time: every request is rejected".to_owned();
        let help = Some("leave burst out, or write at least 1".to_owned());
        fields.warn(fields.at("burst"), Message { text, allowed: None, help }, report);
    }
    if limit.log_records_max() > LOG_RECORDS_BOUNDED {
        warn_of_long_log(fields, &limit, report);
    }
    Ok(limit)
}

fn warn_of_long_log(fields: &Fields<'_, '_>, limit: &Limit, report: &mut Report<'_>) {
    let records = limit.log_records_max();
    let (name, why) =
        if limit.overdraft() { ("overdraft", " in debt") } else { (hits_name(fields), "") };
    let message = format!(
        "a log{why} can hold {records} hits, and one of over {LOG_RECORDS_BOUNDED} can hold Redis \
         for more than 2 ms while it grows; use sliding_window_counter"
    );
    fields.warn(fields.at(name), message, report);
}

/// Reports all the fields that the algorithm does not have, whatever their values.
fn refuse_foreign(
    fields: &Fields<'_, '_>,
    algorithm: Algorithm,
    report: &mut Report<'_>,
) -> Result<(), Reported> {
    let mut result = Ok(());
    for name in LimitSpec::OPTIONAL_FIELDS {
        if fields.get(name).is_some()
            && let Err(error) = algorithm.check_field(name)
        {
            result = Err(refuse_limit(fields, &error, report));
        }
    }
    result
}

fn refuse_limit(fields: &Fields<'_, '_>, error: &LimitError, report: &mut Report<'_>) -> Reported {
    let asked = match error.field {
        "limit" => hits_name(fields),
        "period" => period_name(fields),
        field => field,
    };
    let colon = if error.message.starts_with(|c: char| c.is_ascii_digit()) { "" } else { ":" };
    let message = format!("{asked}{colon} {}", error.message);
    if fields.get(asked).is_some() {
        return fields.refuse(fields.at(asked), message, report);
    }
    // Only defaults differ: burst equals the limit, and sub-windows divide the period.
    let cause = if asked == "sub_windows" { period_name(fields) } else { hits_name(fields) };
    let message = format!("{message}; that is the default of {asked}, give another");
    fields.refuse(fields.at(cause), message, report)
}

fn hits_name(fields: &Fields<'_, '_>) -> &'static str {
    if fields.get("limit").is_some() { "limit" } else { "requests_per_unit" }
}

fn period_name(fields: &Fields<'_, '_>) -> &'static str {
    if fields.get("period").is_some() { "period" } else { "unit" }
}

fn hits(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Result<u64, Reported> {
    let both = refuse_both(fields, ["limit", "requests_per_unit"], report);
    let (limit, other) = (fields.whole("limit", report), fields.whole("requests_per_unit", report));
    both?;
    match limit?.or(other?) {
        Some(hits) => Ok(hits),
        None if fields.get("unit").is_some() => {
            let message = "requests_per_unit is missing and counts as 0: no request passes";
            fields.warn(fields.at, message, report);
            Ok(0)
        }
        None => Err(fields.refuse(
            fields.at,
            "limit is missing; it is the number of hits per period",
            report,
        )),
    }
}

fn period(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Result<u64, Reported> {
    let both = refuse_both(fields, ["period", "unit"], report);
    let (period, unit) = (own_period(fields, report), unit(fields, report));
    both?;
    let unit = times(unit?, fields, report)?;
    match period?.or(unit) {
        Some(period_ms) => Ok(period_ms),
        None => {
            let message = "period is missing; add period, such as 1m, or unit";
            Err(fields.refuse(fields.at, message, report))
        }
    }
}

fn own_period(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Given<u64> {
    let Some(text) = fields.text("period", report)? else {
        return Ok(None);
    };
    let period_ms = period::parse(text);
    let wrong = match period_ms {
        Some(1..=PERIOD_MAX_MS) => return Ok(period_ms),
        Some(_) => "is not from 1ms to 36500d",
        None => "is not whole numbers of d, h, m, s, ms in this order, such as 250ms, 1m30s or 7d",
    };
    let meant = period::guess(text).filter(|guess| (1..=PERIOD_MAX_MS).contains(guess));
    let help = meant.map(|meant| format!("write {}", period::format_seconds(meant)));
    let text = format!("period {} {wrong}", quoted(text));
    Err(fields.refuse(fields.at("period"), Message { text, allowed: None, help }, report))
}

fn unit(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Given<u64> {
    let Some(text) = fields.text("unit", report)? else {
        return Ok(None);
    };
    if let Some(unit) = Unit::from_name(text) {
        return Ok(Some(unit.ms()));
    }
    let message = not_one_of("unit", text, &Unit::ALL.map(Unit::name));
    Err(fields.refuse(fields.at("unit"), message, report))
}

/// The unit multiplied by `unit_multiplier`.
fn times(unit_ms: Option<u64>, fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Given<u64> {
    let Some(times) = fields.whole("unit_multiplier", report)? else {
        return Ok(unit_ms);
    };
    let period_ms = unit_ms.map(|ms| ms.checked_mul(times));
    let wrong = match period_ms {
        None => "is set without unit; leave it out".to_owned(),
        Some(Some(1..=PERIOD_MAX_MS)) => return Ok(period_ms.flatten()),
        Some(_) => format!("{times} makes a period that is not from 1ms to 36500d"),
    };
    Err(fields.refuse(fields.at("unit_multiplier"), format!("unit_multiplier {wrong}"), report))
}

fn algorithm(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Result<Algorithm, Reported> {
    let Some(name) = fields.text("algorithm", report)? else {
        return Ok(Algorithm::default());
    };
    Algorithm::from_name(name).ok_or_else(|| {
        let message = not_one_of("algorithm", name, &Algorithm::ALL.map(Algorithm::name));
        fields.refuse(fields.at("algorithm"), message, report)
    })
}

fn sub_windows(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Given<u32> {
    let Some(count) = fields.whole("sub_windows", report)? else {
        return Ok(None);
    };
    u32::try_from(count).map(Some).map_err(|_too_many| {
        let message = format!("sub_windows {count} is not from 1 to {SUB_WINDOWS_MAX}");
        fields.refuse(fields.at("sub_windows"), message, report)
    })
}

/// Reports a field that is given under both of its names, at the later one.
fn refuse_both(
    fields: &Fields<'_, '_>,
    names: [&str; 2],
    report: &mut Report<'_>,
) -> Result<(), Reported> {
    let mut given = fields.all().iter().filter(|field| names.contains(&&*field.name.text));
    let (Some(first), Some(second)) = (given.next(), given.next()) else {
        return Ok(());
    };
    let (first, second_name) = (&first.name.text, &second.name.text);
    let message = format!("{second_name} is another name of {first}; keep one of them");
    Err(fields.refuse(second.at, message, report))
}
