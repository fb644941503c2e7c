/** Money conversion. The code is in the paywall package, which must not depend on the server. */
export * from "../../packages/paywall/src/money.ts";
