/**
 * Every named schema of the API. Each is a component of the OpenAPI document under the name it has here, and client
 * generators make a type of it.
 */
export * from "./agents.ts";
export * from "./approvals.ts";
export * from "./audit.ts";
export * from "./budgets.ts";
export * from "./channels.ts";
export * from "./common.ts";
export * from "./denied-payees.ts";
export * from "./email.ts";
export * from "./facilitator.ts";
export * from "./fees.ts";
export * from "./first-steps.ts";
export * from "./fetches.ts";
export * from "./listings.ts";
export * from "./local.ts";
export * from "./merchants.ts";
export * from "./meta.ts";
export * from "./notifications.ts";
export * from "./oauth.ts";
export * from "./orders.ts";
export * from "./overview.ts";
export * from "./operators.ts";
export * from "./owners.ts";
export * from "./passkeys.ts";
export * from "./payments.ts";
export * from "./push.ts";
export * from "./recovery.ts";
export * from "./spending.ts";
export * from "./teams.ts";
export { NewTaskBody, Task, TaskPage } from "./tasks.ts";
export * from "./validate.ts";
export * from "./withdrawals.ts";
export * from "./x402-fetch.ts";
/** Of two names for one schema, the shorter is used. */
export { AddressOutput as Address, ErrorCodeWord as ErrorCode } from "./common.ts";
