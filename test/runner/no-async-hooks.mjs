// tap follows every promise with an async hook, to find the subtest of an uncaught error. The hook takes a sixth of the
// CPU time of a test process, so there is none here: an uncaught error fails the process (unit/uncaught-errors).
import asyncHooks from "node:async_hooks";
import { syncBuiltinESMExports } from "node:module";

asyncHooks.createHook = () => ({ enable() {}, disable() {} });
syncBuiltinESMExports();
