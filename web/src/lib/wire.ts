/**
 * The types of the API's requests and responses, derived from the server's schemas. Money is a decimal
 * string, time is ISO 8601.
 */
import type { Static } from "typebox";
import type * as agents from "../../../server/schemas/agents.ts";
import type * as approvals from "../../../server/schemas/approvals.ts";
import type * as audit from "../../../server/schemas/audit.ts";
import type * as budgets from "../../../server/schemas/budgets.ts";
import type * as channels from "../../../server/schemas/channels.ts";
import type * as deniedPayees from "../../../server/schemas/denied-payees.ts";
import type * as email from "../../../server/schemas/email.ts";
import type * as facilitator from "../../../server/schemas/facilitator.ts";
import type * as fees from "../../../server/schemas/fees.ts";
import type * as firstSteps from "../../../server/schemas/first-steps.ts";
import type * as listings from "../../../server/schemas/listings.ts";
import type * as local from "../../../server/schemas/local.ts";
import type * as merchants from "../../../server/schemas/merchants.ts";
import type * as meta from "../../../server/schemas/meta.ts";
import type * as notifications from "../../../server/schemas/notifications.ts";
import type * as oauth from "../../../server/schemas/oauth.ts";
import type * as operators from "../../../server/schemas/operators.ts";
import type * as overview from "../../../server/schemas/overview.ts";
import type * as owners from "../../../server/schemas/owners.ts";
import type * as push from "../../../server/schemas/push.ts";
import type * as payments from "../../../server/schemas/payments.ts";
import type * as passkeys from "../../../server/schemas/passkeys.ts";
import type * as spending from "../../../server/schemas/spending.ts";
import type * as tasks from "../../../server/schemas/tasks.ts";
import type * as validate from "../../../server/schemas/validate.ts";
import type * as withdrawals from "../../../server/schemas/withdrawals.ts";
import type * as recovery from "../../../server/schemas/recovery.ts";
import type * as fetches from "../../../server/schemas/fetches.ts";
import type * as teams from "../../../server/schemas/teams.ts";
import type * as x402Fetch from "../../../server/schemas/x402-fetch.ts";

export type Address = string;

export type ServiceInfo = Static<typeof meta.ServiceInfo>;
export type NetworkInfo = Static<typeof meta.NetworkInfo>;
export type CatalogueEntry = Static<typeof meta.ErrorCatalogue>["items"][number];
export type LocalInfo = Static<typeof local.LocalInfo>;
export type Team = Static<typeof teams.Team>;
export type WaitingOrder = Static<typeof teams.WaitingOrder>;
export type Session = Static<typeof owners.SessionInfo>;
export type SessionRow = Static<typeof owners.SessionPage>["items"][number];
/** A single agent has members that an agent in a list does not have. */
export type Agent = Static<typeof agents.Agent> &
  Partial<Pick<Static<typeof agents.AgentDetail>, "allowances">>;
export type NetworkBalance = Static<typeof agents.NetworkBalance>;
export type NewAgent = Static<typeof agents.CreateAgentBody>;
export type AgentChanges = Static<typeof agents.UpdateAgentBody>;
export type Limits = Static<typeof agents.Limits>;
export type Spending = spending.Spending;
export type SpendingFilter = spending.SpendingFilter;
export type SavedFilter = spending.SavedFilter;
export type ApiKey = Static<typeof agents.ApiKeyInfo>;
export type CreatedAgent = Static<typeof agents.CreatedAgent>;
export type CreatedKey = Static<typeof agents.CreatedKey>;
export type AuditEntry = Static<typeof audit.AuditEntry>;
export type AuditLine = Static<typeof audit.AuditLine>;
export type Approval = Static<typeof approvals.Approval>;
export type DeniedPayee = Static<typeof deniedPayees.DeniedPayee>;
export type Connection = Static<typeof oauth.Connection>;
export type ConsentRequest = Static<typeof oauth.ConsentRequest>;
export type Email = Static<typeof email.Email>;
export type Notification = Static<typeof notifications.Notification>;
export type FailingChannel = notifications.FailingChannel;
export type PushDevice = push.PushDevice;
export type PushDevicePage = push.PushDevicePage;
export type NotificationTypeName = notifications.NotificationTypeName;
export type Webhook = Static<typeof notifications.Webhook>;
export type WebhookWithSecret = Static<typeof notifications.WebhookWithSecret>;
export type WebhookDelivery = Static<typeof notifications.WebhookDelivery>;
export type FirstSteps = firstSteps.FirstSteps;
export type OperatorOverview = operators.OperatorOverview;
export type OperatorDifferences = operators.OperatorDifferences;
export type OperatorAccounts = operators.OperatorAccounts;
export type OperatorMerchants = operators.OperatorMerchants;
export type OperatorDeliveries = operators.OperatorDeliveries;
export type OperatorEntry = operators.OperatorEntry;
export type OperatorConfiguration = operators.OperatorConfiguration;
export type OperatorChecks = operators.OperatorChecks;
export type OperatorDone = Static<typeof operators.OperatorDone>;
export type Overview = Static<typeof overview.Overview>;
export type Passkeys = Static<typeof passkeys.Passkeys>;
export type Passkey = Passkeys["passkeys"][number];
export type PasskeyOptions = Static<typeof passkeys.PasskeyOptions>;
export type Payout = Static<typeof passkeys.Payout>;
export type Payment = Static<typeof payments.Payment>;
export type AgentChannel = Static<typeof channels.AgentChannel>;
export type PaymentChannelTotal = channels.PaymentChannelTotal;
export type ClosingAnswer = Static<typeof channels.ClosingAnswer>;
export type PreparedWithdrawal = Static<typeof withdrawals.PreparedWithdrawal>;
export type WithdrawalOrder = Static<typeof withdrawals.WithdrawalOrder>;
export type WithdrawalAnswer = Static<typeof withdrawals.WithdrawalAnswer>;
export type FetchEntry = Static<typeof fetches.Fetch>;
export type FetchAnswer = Static<typeof x402Fetch.X402FetchAnswer>;
export type SiteLookup = Static<typeof x402Fetch.SiteLookup>;
export type FacilitatorStats = Static<typeof facilitator.FacilitatorStats>;
export type Budget = Static<typeof budgets.Budget>;
export type Task = tasks.Task;
export type BudgetAgent = Static<typeof budgets.BudgetAgent>;
export type Merchant = Static<typeof merchants.Merchant>;
export type MerchantSettlement = Static<typeof merchants.MerchantSettlement>;
export type MerchantSettlementDetail = Static<typeof merchants.MerchantSettlementDetail>;
export type MerchantProduct = merchants.MerchantProductPage["items"][number];
export type SignedMerchantReceipt = merchants.SignedMerchantReceipt;
export type NewMerchantReceipt = merchants.NewMerchantReceipt;
export type Refund = Static<typeof merchants.Refund>;
export type MerchantFees = fees.MerchantFees;
export type FeeEntry = fees.FeeEntry;
export type MerchantKey = Static<typeof merchants.MerchantKeyInfo>;
export type CreatedMerchantKey = Static<typeof merchants.CreatedMerchantKey>;
export type Listing = Static<typeof listings.Listing>;
export type Validation = validate.Validation;
export type ProbeResult = Static<typeof listings.ProbeResult>;

export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

export interface TypedData {
  domain: Record<string, unknown>;
  types: Record<string, { name: string; type: string }[]>;
  primaryType: string;
  message: object;
}
export type Recovery = Static<typeof recovery.Recovery>;
