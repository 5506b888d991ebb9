//! The environment variables that the runtime reads when it is opened.
//!
//! | variable | value | field |
//! | --- | --- | --- |
//! | `NEURON_RT_LOG_LEVEL_TDRV`, or `NEURON_RT_LOG_LEVEL` | QUIET, ERROR, WARN, INFO, DEBUG or TRACE; ERROR if unset | [`log_level`](RuntimeConfig::log_level) |
//! | `NEURON_RT_LOG_LOCATION_TDRV`, or `NEURON_RT_LOG_LOCATION` | console, syslog or file | [`log_location`](RuntimeConfig::log_location) |
//! | `NEURON_RT_VISIBLE_CORES` | logical cores that rise without a gap: 0-3 or 0,1 | [`visible_cores`](RuntimeConfig::visible_cores) |
//! | `NEURON_RT_NUM_CORES`, unless the one before is set | how many logical cores, 0 for all | [`visible_cores`](RuntimeConfig::visible_cores) |
//! | `NEURON_RT_DEBUG_MEMLOG_MAX_SIZE` | number of events | [`events_max`](RuntimeConfig::events_max) |
//! | `NEURON_RT_VIRTUAL_CORE_SIZE`, or `NEURON_LOGICAL_NC_CONFIG` | 1 or 2, 2 if unset | [`lnc_size`](RuntimeConfig::lnc_size) |
//! | `NEURON_SCRATCHPAD_PAGE_SIZE`, or `NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB` | MB, a multiple of 512 below 4096 | [`scratchpad_page`](RuntimeConfig::scratchpad_page) |
//! | `NEURON_RT_CONTIGUOUS_SCRATCHPAD`, or `NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD` | 0 or 1 | [`contiguous_scratchpad`](RuntimeConfig::contiguous_scratchpad) |
//! | `NEURON_RT_DBG_VERBOSE_DEV_MEM` | 0 or 1 | [`verbose_tables`](RuntimeConfig::verbose_tables) |
//! | `NEURON_RT_ENABLE_DEVICE_MEMORY_OOM_LOG` | 0 or 1 | [`oom_log`](RuntimeConfig::oom_log) |
//! | `NEURON_RT_DBG_ZEROCOPY` | 0 or 1 | [`zero_copy`](RuntimeConfig::zero_copy) |
//! | `NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE` | bytes up to 65535, `0x` for hexadecimal | [`bar4_wr_threshold_bytes`](RuntimeConfig::bar4_wr_threshold_bytes) |
//! | `NEURON_RT_HBM_INIT_VAL` | a byte, `0x` for hexadecimal | [`hbm_init_value`](RuntimeConfig::hbm_init_value) |
//!
//! All lines of this runtime are of the component `TDRV`; the level and location of `NMGR`, `KMGR` and
//! `NRT` are looked at for errors only. The first name of a row wins over the second. What is unset or empty changes nothing. The process
//! environment is not read here: whoever opens the runtime says where to look. No variable names the
//! place of the files of [`dump`](RuntimeConfig::dump).
//!
//! These variables of the reference have no meaning here, and are not read:
//!
//! | variable | why |
//! | --- | --- |
//! | `NEURON_RT_LOG_COALESCING_ENABLED` | whoever takes the lines ([`Log`](crate::dml::Log)) may merge them |
//! | `NEURON_RT_RESET_CORES` | the runtime resets no cores by itself |
//! | `NEURON_RT_ENABLE_MEMORY_METRICS` | the driver counts for itself, from the categories of allocations |
//! | `NEURON_RT_MAP_HBM`, `NEURON_RT_ENABLE_P2P` | tensors in HBM have no address in the program, and none in other devices |
//! | `NEURON_RT_DBG_SCRATCHPAD_ON_SINGLE_CORE` | what it changes is not public |
//! | `NEURON_RT_PROFILE_BUF_<kind>_MB` | nothing is profiled, so that there are no buffers for it |
//! | `NEURON_RT_MULTI_INSTANCE_SHARED_WEIGHTS` | no weights are loaded here |
//! | `NEURON_RT_FAKE_INSTANCE_TYPE` | the driver says what the device is |
//! | `NEURON_PROCESS_TAG` | a text for tools that look at processes |

use super::{LogLevel, LogLocation, PageSize, RuntimeConfig, VisibleCores};

/// A variable whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {wanted} is wanted")]
pub struct EnvError {
    /// Which variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What it could be.
    pub wanted: &'static str,
}

impl RuntimeConfig {
    /// What the environment says, and the default where it says nothing. `lookup` gives the value of
    /// a variable.
    ///
    /// # Errors
    /// [`EnvError`] for the first value that cannot be used.
    ///
    /// ```
    /// use glia_runtime::RuntimeConfig;
    ///
    /// let config = RuntimeConfig::from_env(|name| std::env::var(name).ok())?;
    /// # Ok::<(), glia_runtime::config::EnvError>(())
    /// ```
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, EnvError> {
        let mut config = Self::default();
        let env = Env(&lookup);
        env.log(&mut config)?;
        env.cores(&mut config)?;
        env.read(
            &["NEURON_RT_DEBUG_MEMLOG_MAX_SIZE"],
            "a number of events",
            |value| value.parse().ok(),
            &mut config.events_max,
        )?;
        config.lnc_size = 2;
        env.read(
            &["NEURON_RT_VIRTUAL_CORE_SIZE", "NEURON_LOGICAL_NC_CONFIG"],
            "1 or 2",
            |value| value.parse().ok().filter(|size| (1..=2).contains(size)),
            &mut config.lnc_size,
        )?;
        env.read(
            &[
                "NEURON_SCRATCHPAD_PAGE_SIZE",
                "NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB",
            ],
            "a multiple of 512 (MB) from 512 to 3584",
            |value| value.parse().ok().and_then(PageSize::from_mib),
            &mut config.scratchpad_page,
        )?;
        env.switch(
            &[
                "NEURON_RT_CONTIGUOUS_SCRATCHPAD",
                "NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD",
            ],
            &mut config.contiguous_scratchpad,
        )?;
        env.switch(
            &["NEURON_RT_DBG_VERBOSE_DEV_MEM"],
            &mut config.verbose_tables,
        )?;
        env.switch(
            &["NEURON_RT_ENABLE_DEVICE_MEMORY_OOM_LOG"],
            &mut config.oom_log,
        )?;
        env.switch(&["NEURON_RT_DBG_ZEROCOPY"], &mut config.zero_copy)?;
        env.read(
            &["NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE"],
            "a number of bytes from 0 to 65535",
            |value| number(value).map(Some),
            &mut config.bar4_wr_threshold_bytes,
        )?;
        env.read(
            &["NEURON_RT_HBM_INIT_VAL"],
            "a byte from 0 to 255",
            |value| Some(Some(u8::try_from(number(value)?).ok()?)),
            &mut config.hbm_init_value,
        )?;
        Ok(config)
    }
}

const LEVELS: &[&str] = &["NEURON_RT_LOG_LEVEL_TDRV", "NEURON_RT_LOG_LEVEL"];
const LOCATIONS: &[&str] = &["NEURON_RT_LOG_LOCATION_TDRV", "NEURON_RT_LOG_LOCATION"];
const OTHER_LEVELS: &[&str] = &[
    "NEURON_RT_LOG_LEVEL_NMGR",
    "NEURON_RT_LOG_LEVEL_KMGR",
    "NEURON_RT_LOG_LEVEL_NRT",
];
const OTHER_LOCATIONS: &[&str] = &[
    "NEURON_RT_LOG_LOCATION_NMGR",
    "NEURON_RT_LOG_LOCATION_KMGR",
    "NEURON_RT_LOG_LOCATION_NRT",
];

struct Env<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Env<'_> {
    /// Sets a field to the value of the first variable that has one.
    fn read<T>(
        &self,
        variables: &[&'static str],
        wanted: &'static str,
        parse: impl Fn(&str) -> Option<T>,
        field: &mut T,
    ) -> Result<(), EnvError> {
        let values = variables.iter().filter_map(|variable| {
            let value = (self.0)(variable)?;
            (!value.trim().is_empty()).then_some((*variable, value))
        });
        let Some((variable, value)) = { values }.next() else {
            return Ok(());
        };
        match parse(value.trim()) {
            Some(parsed) => *field = parsed,
            None => {
                return Err(EnvError {
                    variable,
                    value,
                    wanted,
                });
            }
        }
        Ok(())
    }

    fn log(&self, config: &mut RuntimeConfig) -> Result<(), EnvError> {
        let wanted = "QUIET, ERROR, WARN, INFO, DEBUG or TRACE";
        config.log_level = LogLevel::Error;
        self.read(LEVELS, wanted, LogLevel::named, &mut config.log_level)?;
        let wanted_place = "console, syslog or file";
        let place = &mut config.log_location;
        self.read(LOCATIONS, wanted_place, LogLocation::named, place)?;
        // Of components that say nothing here.
        for variable in OTHER_LEVELS.chunks(1) {
            self.read(variable, wanted, LogLevel::named, &mut LogLevel::default())?;
        }
        for variable in OTHER_LOCATIONS.chunks(1) {
            let unused = &mut LogLocation::default();
            self.read(variable, wanted_place, LogLocation::named, unused)?;
        }
        Ok(())
    }

    fn cores(&self, config: &mut RuntimeConfig) -> Result<(), EnvError> {
        let visible = &mut config.visible_cores;
        let count = |value: &str| value.parse().ok().map(VisibleCores::First);
        let wanted = "a number of logical cores, 0 for all";
        self.read(&["NEURON_RT_NUM_CORES"], wanted, count, visible)?;
        let wanted = "a list of logical cores that rise without a gap, as 0-3 or 0,1";
        let variables = &["NEURON_RT_VISIBLE_CORES"];
        self.read(variables, wanted, VisibleCores::parse, visible)
    }

    fn switch(&self, variables: &[&'static str], field: &mut bool) -> Result<(), EnvError> {
        let parse = |value: &str| match value {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        self.read(variables, "0 or 1", parse, field)
    }
}

fn number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(set: &[(&str, &str)]) -> Result<RuntimeConfig, EnvError> {
        RuntimeConfig::from_env(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_empty_environment_is_the_default_with_two_cores_in_one() {
        let config = config(&[("NEURON_RT_DBG_VERBOSE_DEV_MEM", "")]).unwrap();
        assert_eq!(config.events_max, 1_048_576);
        assert_eq!(config.lnc_size, 2);
        assert_eq!(config.scratchpad_page.mib(), 512);
        assert_eq!(config.bar4_wr_threshold_bytes, None);
        assert_eq!(config.hbm_init_value, None);
        assert!(config.oom_log && !config.verbose_tables && !config.zero_copy);
        assert!(!config.contiguous_scratchpad);
        assert_eq!(config.visible_cores, VisibleCores::All);
        assert_eq!(config.log_level, LogLevel::Error);
        assert_eq!(config.log_location, LogLocation::Console);
    }

    #[test]
    fn each_variable_has_its_field() {
        let config = config(&[
            ("NEURON_RT_DEBUG_MEMLOG_MAX_SIZE", "16"),
            ("NEURON_RT_VIRTUAL_CORE_SIZE", "1"),
            ("NEURON_SCRATCHPAD_PAGE_SIZE", " 1024 "),
            ("NEURON_RT_CONTIGUOUS_SCRATCHPAD", "1"),
            ("NEURON_RT_DBG_VERBOSE_DEV_MEM", "1"),
            ("NEURON_RT_ENABLE_DEVICE_MEMORY_OOM_LOG", "0"),
            ("NEURON_RT_DBG_ZEROCOPY", "1"),
            ("NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE", "0x800"),
            ("NEURON_RT_HBM_INIT_VAL", "0xa5"),
            ("NEURON_RT_VISIBLE_CORES", "2-3"),
            ("NEURON_RT_LOG_LEVEL", "info"),
            ("NEURON_RT_LOG_LOCATION", "syslog"),
        ])
        .unwrap();
        assert_eq!((config.events_max, config.lnc_size), (16, 1));
        assert_eq!(config.scratchpad_page.mib(), 1024);
        assert_eq!(config.bar4_wr_threshold_bytes, Some(2048));
        assert_eq!(config.hbm_init_value, Some(0xa5));
        assert!(config.contiguous_scratchpad && config.verbose_tables && config.zero_copy);
        assert!(!config.oom_log);
        assert_eq!(config.visible_cores, VisibleCores::Between(2, 3));
        assert_eq!(config.log_level, LogLevel::Info);
        assert_eq!(config.log_location, LogLocation::Syslog);
    }

    #[test]
    fn visible_cores_win_over_their_number_and_a_component_over_all() {
        let number = ("NEURON_RT_NUM_CORES", "3");
        let visible = |set: &[(&str, &str)]| config(set).unwrap().visible_cores;
        assert_eq!(visible(&[number]), VisibleCores::First(3));
        let both = [number, ("NEURON_RT_VISIBLE_CORES", "1")];
        assert_eq!(visible(&both), VisibleCores::Between(1, 1));
        let level = config(&[
            ("NEURON_RT_LOG_LEVEL", "TRACE"),
            ("NEURON_RT_LOG_LEVEL_TDRV", "QUIET"),
            ("NEURON_RT_LOG_LEVEL_NRT", "WARN"),
        ]);
        assert_eq!(level.unwrap().log_level, LogLevel::Quiet);
    }

    #[test]
    fn an_older_name_counts_where_the_newer_is_not_set() {
        let page = |set: &[(&str, &str)]| config(set).unwrap().scratchpad_page.mib();
        let old = ("NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB", "2048");
        assert_eq!(page(&[old]), 2048);
        assert_eq!(page(&[old, ("NEURON_SCRATCHPAD_PAGE_SIZE", "1536")]), 1536);
        let set = [("NEURON_LOGICAL_NC_CONFIG", "1")];
        assert_eq!(config(&set).unwrap().lnc_size, 1);
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named() {
        let cases = [
            (
                ("NEURON_SCRATCHPAD_PAGE_SIZE", "4096"),
                "NEURON_SCRATCHPAD_PAGE_SIZE=4096: a multiple of 512 (MB) from 512 to 3584 is wanted",
            ),
            (
                ("NEURON_RT_DBG_ZEROCOPY", "yes"),
                "NEURON_RT_DBG_ZEROCOPY=yes: 0 or 1 is wanted",
            ),
            (
                ("NEURON_LOGICAL_NC_CONFIG", "4"),
                "NEURON_LOGICAL_NC_CONFIG=4: 1 or 2 is wanted",
            ),
            (
                ("NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE", "0x10000"),
                "NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE=0x10000: a number of bytes from 0 to 65535 is wanted",
            ),
            (
                ("NEURON_RT_HBM_INIT_VAL", "256"),
                "NEURON_RT_HBM_INIT_VAL=256: a byte from 0 to 255 is wanted",
            ),
            (
                ("NEURON_RT_VISIBLE_CORES", "0,2"),
                "NEURON_RT_VISIBLE_CORES=0,2: a list of logical cores that rise without a gap, as 0-3 or 0,1 is wanted",
            ),
            (
                ("NEURON_RT_NUM_CORES", "all"),
                "NEURON_RT_NUM_CORES=all: a number of logical cores, 0 for all is wanted",
            ),
            (
                ("NEURON_RT_LOG_LEVEL_KMGR", "LOUD"),
                "NEURON_RT_LOG_LEVEL_KMGR=LOUD: QUIET, ERROR, WARN, INFO, DEBUG or TRACE is wanted",
            ),
            (
                ("NEURON_RT_LOG_LOCATION", "tape"),
                "NEURON_RT_LOG_LOCATION=tape: console, syslog or file is wanted",
            ),
            (
                ("NEURON_RT_DEBUG_MEMLOG_MAX_SIZE", "-1"),
                "NEURON_RT_DEBUG_MEMLOG_MAX_SIZE=-1: a number of events is wanted",
            ),
        ];
        for (set, wanted) in cases {
            assert_eq!(config(&[set]).err().unwrap().to_string(), wanted);
        }
    }
}
