import { TextInput } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useSearchParams } from "react-router";
import { Badge } from "../../components/Badge.tsx";
import { AnchorButton } from "../../components/Button.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { DownloadIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import rows from "../../components/Rows.module.css";
import { Select } from "../../components/Select.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { shortAddress } from "../../lib/address.ts";
import { parseUsdc } from "../../lib/money.ts";
import { useChangeParameters, useParameter } from "../../lib/use-parameter.ts";
import type { MerchantSettlement } from "../../lib/wire.ts";
import { useInfo, useNetworkNames } from "../../shared/info.ts";
import { csvHref, type SettlementFilter, settlementsQuery } from "./api.ts";
import styles from "./Merchant.module.css";
import { SettlementDrawer } from "./SettlementDrawer.tsx";
import { STATUS_OPTIONS, statusOf } from "./words.ts";

/** What was settled, narrowed by what stands in the address: back, refresh and sharing keep it. */
export function Settlements(): ReactNode {
  const [status, setStatus] = useParameter("status");
  const [network, setNetwork] = useParameter("network");
  const [from, setFrom] = useParameter("from");
  const [to, setTo] = useParameter("to");
  const [payer, setPayer] = useParameter("payer");
  const [minimum, setMinimum] = useParameter("minimum");
  const isAddress = /^0x[0-9a-fA-F]{40}$/.test(payer.trim());
  const isAmount = (parseUsdc(minimum) ?? 0n) > 0n;
  const filter: SettlementFilter = {
    ...(status !== "" && { status }),
    ...(network !== "" && { network }),
    ...(from !== "" && { from: instant(from, 0) }),
    ...(to !== "" && { to: instant(to, 1) }),
    ...(isAddress && { payer: payer.trim() }),
    ...(isAmount && { minimum: minimum.trim() }),
  };
  const query = useInfiniteQuery(settlementsQuery(filter));
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  const [parameters] = useSearchParams();
  const change = useChangeParameters();
  const openId = parameters.get("settlement");
  const networks = useInfo()?.networks ?? [];
  const isFiltered = Object.keys(filter).length > 0;
  return (
    <Section
      flush
      title="Settlements"
      hint="What was settled to your wallet here. Open one to refund it."
      actions={
        <AnchorButton href={csvHref(filter)}>
          <DownloadIcon size={16} />
          CSV
        </AnchorButton>
      }
    >
      <div className={styles.filters}>
        <Select
          label="Status"
          isLabelHidden
          value={status}
          options={STATUS_OPTIONS}
          onChange={setStatus}
        />
        {networks.length > 1 && (
          <Select
            label="Network"
            isLabelHidden
            value={network}
            options={[
              { value: "", label: "Every network" },
              ...networks.map(({ id, name }) => ({ value: id, label: name })),
            ]}
            onChange={setNetwork}
          />
        )}
        <Filter label="From day" type="date" value={from} onChange={setFrom} />
        <Filter label="To day" type="date" value={to} onChange={setTo} />
        <Filter
          label="Payer"
          placeholder="Payer 0x…"
          value={payer}
          onChange={setPayer}
          error={payer !== "" && !isAddress}
        />
        <Filter
          label="At least, USDC"
          placeholder="At least"
          value={minimum}
          onChange={setMinimum}
          error={minimum !== "" && !isAmount}
        />
      </div>
      <QueryStatus query={query} what="settlements" failed="Settlements could not be loaded">
        <Skeleton shape="row" count={6} />
      </QueryStatus>
      {query.isSuccess && items.length === 0 && (
        <EmptyState title={isFiltered ? "No settlement matches" : "Nothing was settled to you yet"}>
          {isFiltered
            ? "Change the filter."
            : "Point your API here, with this wallet as its payTo. The first payment appears by itself."}
        </EmptyState>
      )}
      <ul>
        {items.map((settlement) => (
          <SettlementRow
            key={settlement.id}
            settlement={settlement}
            onOpen={() => {
              change((next) => {
                next.set("settlement", settlement.id);
              });
            }}
          />
        ))}
      </ul>
      <LoadMore query={query} what="settlements" />
      <SettlementDrawer
        id={openId}
        onClose={() => {
          change(
            (next) => {
              next.delete("settlement");
            },
            { replace: true },
          );
        }}
      />
    </Section>
  );
}

/** A day of the person who looks, as its first moment. */
function instant(date: string, addDays: number): string | undefined {
  const [year = 0, month = 1, day = 1] = date.split("-").map(Number);
  const time = new Date(year, month - 1, day + addDays);
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString();
}

interface FilterProps {
  label: string;
  type?: "date";
  placeholder?: string;
  value: string;
  onChange: (value: string) => void;
  error?: boolean;
}

const Filter = ({ label, type, placeholder, value, onChange, error }: FilterProps): ReactNode => (
  <TextInput
    aria-label={label}
    type={type}
    placeholder={placeholder}
    className={styles.filter}
    autoComplete="off"
    spellCheck={false}
    value={value}
    error={error}
    onChange={(event) => {
      onChange(event.currentTarget.value);
    }}
  />
);

function SettlementRow({
  settlement,
  onOpen,
}: {
  settlement: MerchantSettlement;
  onOpen: () => void;
}): ReactNode {
  const status = statusOf(settlement);
  const nameOf = useNetworkNames();
  const isMoney = settlement.status === "settled";
  return (
    <li className={styles.row}>
      <div className={rows.what}>
        <button type="button" className={rows.open} onClick={onOpen} aria-haspopup="dialog">
          {shortAddress(settlement.payer)}
        </button>
        <span className={rows.meta}>
          {nameOf(settlement.network)}
          {settlement.errorReason !== null && ` · ${settlement.errorReason.replaceAll("_", " ")}`}
        </span>
      </div>
      <span className={styles.status}>
        <Badge tone={status.tone}>{status.label}</Badge>
      </span>
      <span className={`${rows.meta} ${styles.time}`}>
        <TimeAgo iso={settlement.createdAt} />
      </span>
      <span className={isMoney ? styles.amount : styles.struck}>
        <Money amount={settlement.amount} />
      </span>
    </li>
  );
}
