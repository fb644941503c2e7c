/** `import { Purser } from "purser"`. */
export * from "./client.ts";
export { ApprovalNeeded, type Delivered, type Problem, PurserError } from "./problem.ts";
export type * from "./types.ts";
