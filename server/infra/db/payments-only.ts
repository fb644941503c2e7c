/** Separates payments from what else is stored as a settlement. */
import { CHANNEL_ORDERS } from "../../core/authorization.ts";

/**
 * True for a row of `settlements` that moves a payer's money: not for a claim, settle, refund or withdrawal of payment
 * channels, which only move on what a deposit has paid.
 */
export const IS_PAYMENT = `coalesce(terms->>'scheme', '') NOT IN (${CHANNEL_ORDERS.map((scheme) => `'${scheme}'`).join(", ")})`;
