import { TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { Select } from "../../components/Select.tsx";
import { parseUsdc } from "../../lib/money.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import { useInfo } from "../../shared/info.ts";
import type { SettlementFilter } from "./api.ts";
import styles from "./Merchant.module.css";
import { STATUS_OPTIONS } from "./words.ts";

export type Choice = ReturnType<typeof useChoice>;

/** The filter in the URL, and the valid part of it for the request. */
export function useChoice() {
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
  return {
    filter,
    status: { value: status, onChange: setStatus },
    network: { value: network, onChange: setNetwork },
    from: { value: from, onChange: setFrom },
    to: { value: to, onChange: setTo },
    payer: { value: payer, onChange: setPayer, error: payer !== "" && !isAddress },
    minimum: { value: minimum, onChange: setMinimum, error: minimum !== "" && !isAmount },
  };
}

/** The start of a day in the user's time zone. */
function instant(date: string, addDays: number): string | undefined {
  const [year = 0, month = 1, day = 1] = date.split("-").map(Number);
  const time = new Date(year, month - 1, day + addDays);
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString();
}

export function Filters({ choice }: { choice: Choice }): ReactNode {
  const networks = useInfo()?.networks ?? [];
  return (
    <div className={styles.filters}>
      <Select label="Status" isLabelHidden options={STATUS_OPTIONS} {...choice.status} />
      {networks.length > 1 && (
        <Select
          label="Network"
          isLabelHidden
          options={[
            { value: "", label: "Every network" },
            ...networks.map(({ id, name }) => ({ value: id, label: name })),
          ]}
          {...choice.network}
        />
      )}
      <Field label="From day" type="date" {...choice.from} />
      <Field label="To day" type="date" {...choice.to} />
      <Field label="Payer" placeholder="Payer 0x…" {...choice.payer} />
      <Field label="At least, USDC" placeholder="At least" {...choice.minimum} />
    </div>
  );
}

interface FieldProps {
  label: string;
  type?: "date";
  placeholder?: string;
  value: string;
  onChange: (value: string) => void;
  error?: boolean;
}

const Field = ({ label, type, placeholder, value, onChange, error }: FieldProps): ReactNode => (
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
