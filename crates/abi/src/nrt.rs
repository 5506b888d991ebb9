//! Status codes of the runtime's API (`nrt_status.h` of runtime 2.31).

use std::fmt;

macro_rules! status {
    ($($value:literal $variant:ident $name:literal $doc:literal),* $(,)?) => {
        /// What a call of the runtime answers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum NrtStatus {
            $(#[doc = $doc] $variant = $value,)*
        }

        impl NrtStatus {
            /// All of them, by value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The enumerator's name, as `nrt_get_status_as_str` gives it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

status! {
    0 Success "NRT_SUCCESS" "As asked.",
    1 Failure "NRT_FAILURE" "Failed, for no reason that has a code.",
    2 Invalid "NRT_INVALID" "An argument is out of range.",
    3 InvalidHandle "NRT_INVALID_HANDLE" "A handle that names nothing.",
    4 Resource "NRT_RESOURCE" "Memory ran out, on the device as a rule.",
    5 Timeout "NRT_TIMEOUT" "Not in time.",
    6 HwError "NRT_HW_ERROR" "The hardware failed.",
    7 QueueFull "NRT_QUEUE_FULL" "No room in the queue.",
    9 LoadNotEnoughNc "NRT_LOAD_NOT_ENOUGH_NC" "Fewer cores than the model needs.",
    10 UnsupportedNeffVersion "NRT_UNSUPPORTED_NEFF_VERSION" "A model of another format.",
    11 FailHostMemAlloc "NRT_FAIL_HOST_MEM_ALLOC" "Host memory ran out.",
    13 Uninitialized "NRT_UNINITIALIZED" "The runtime has not been initialised.",
    14 Closed "NRT_CLOSED" "The runtime has been closed.",
    15 QueueEmpty "NRT_QUEUE_EMPTY" "Nothing in the queue.",
    101 ExecUnitUnrecoverable "NRT_EXEC_UNIT_UNRECOVERABLE" "The execution unit has to be reset.",
    1002 ExecBadInput "NRT_EXEC_BAD_INPUT" "An execution's input is wrong.",
    1003 ExecCompletedWithNumErr "NRT_EXEC_COMPLETED_WITH_NUM_ERR" "Executed, with numerical errors.",
    1004 ExecCompletedWithErr "NRT_EXEC_COMPLETED_WITH_ERR" "Executed, with errors.",
    1005 ExecNcBusy "NRT_EXEC_NC_BUSY" "The core is busy.",
    1006 ExecOob "NRT_EXEC_OOB" "An access out of bounds.",
    1100 CollPending "NRT_COLL_PENDING" "A collective is under way.",
    1200 ExecHwErrCollectives "NRT_EXEC_HW_ERR_COLLECTIVES" "Hardware failed in a collective.",
    1201 ExecHwErrHbmUe "NRT_EXEC_HW_ERR_HBM_UE" "Uncorrectable error in HBM.",
    1202 ExecHwErrNcUe "NRT_EXEC_HW_ERR_NC_UE" "Uncorrectable error in a core.",
    1203 ExecHwErrDmaAbort "NRT_EXEC_HW_ERR_DMA_ABORT" "A DMA was aborted.",
    1204 ExecSwNqOverflow "NRT_EXEC_SW_NQ_OVERFLOW" "A notification queue overflowed.",
    1205 ExecHwErrRepairableHbmUe "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE" "A repairable error in HBM.",
    1206 NetworkProxyFailure "NRT_NETWORK_PROXY_FAILURE" "The network proxy failed.",
}

impl NrtStatus {
    /// The code.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The name of a code (`nrt_get_status_as_str`): `UNKNOWN` if it is none.
    #[must_use]
    pub fn name_of(code: i32) -> &'static str {
        let mut all = Self::ALL.iter();
        let status = all.find(|status| status.code() == code);
        status.map_or("UNKNOWN", |status| status.name())
    }
}

impl fmt::Display for NrtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_header() {
        let header = [
            (0, "NRT_SUCCESS"),
            (1, "NRT_FAILURE"),
            (2, "NRT_INVALID"),
            (3, "NRT_INVALID_HANDLE"),
            (4, "NRT_RESOURCE"),
            (5, "NRT_TIMEOUT"),
            (6, "NRT_HW_ERROR"),
            (7, "NRT_QUEUE_FULL"),
            (9, "NRT_LOAD_NOT_ENOUGH_NC"),
            (10, "NRT_UNSUPPORTED_NEFF_VERSION"),
            (11, "NRT_FAIL_HOST_MEM_ALLOC"),
            (13, "NRT_UNINITIALIZED"),
            (14, "NRT_CLOSED"),
            (15, "NRT_QUEUE_EMPTY"),
            (101, "NRT_EXEC_UNIT_UNRECOVERABLE"),
            (1002, "NRT_EXEC_BAD_INPUT"),
            (1003, "NRT_EXEC_COMPLETED_WITH_NUM_ERR"),
            (1004, "NRT_EXEC_COMPLETED_WITH_ERR"),
            (1005, "NRT_EXEC_NC_BUSY"),
            (1006, "NRT_EXEC_OOB"),
            (1100, "NRT_COLL_PENDING"),
            (1200, "NRT_EXEC_HW_ERR_COLLECTIVES"),
            (1201, "NRT_EXEC_HW_ERR_HBM_UE"),
            (1202, "NRT_EXEC_HW_ERR_NC_UE"),
            (1203, "NRT_EXEC_HW_ERR_DMA_ABORT"),
            (1204, "NRT_EXEC_SW_NQ_OVERFLOW"),
            (1205, "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE"),
            (1206, "NRT_NETWORK_PROXY_FAILURE"),
        ];
        let all = NrtStatus::ALL.iter();
        let all: Vec<_> = all.map(|status| (status.code(), status.name())).collect();
        assert_eq!(all, header);
        assert_eq!(NrtStatus::Resource.code(), 4);
        assert_eq!(NrtStatus::FailHostMemAlloc.code(), 11);
        assert_eq!(NrtStatus::NetworkProxyFailure.code(), 1206);
    }

    #[test]
    fn a_code_that_is_none_has_the_name_of_the_unknown() {
        assert_eq!(NrtStatus::name_of(4), "NRT_RESOURCE");
        for code in [-1, 8, 12, 1207] {
            assert_eq!(NrtStatus::name_of(code), "UNKNOWN");
        }
    }
}
