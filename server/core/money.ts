/** Money as everybody here converts it. It lies with the paywall, a package that takes nothing from the server. */
export * from "../../packages/paywall/src/money.ts";
