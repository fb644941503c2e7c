import { NativeSelect, Text, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { serverNowMs } from "../../lib/clock.ts";
import { formatDateTime } from "../../lib/time.ts";

const DAY_MS = 86_400_000;
const CHOICES = [
  { value: "never", label: "Never" },
  { value: "1", label: "In 1 day" },
  { value: "7", label: "In 7 days" },
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "date", label: "At a date…" },
];

/** `datetime-local` uses local time without a zone; the API uses UTC. */
const toLocal = (iso: string): string => {
  const date = new Date(iso);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
};

export function ExpiryField({
  label,
  value,
  onChange,
  error,
}: {
  label: string;
  value: string;
  onChange: (iso: string) => void;
  error?: string;
}): ReactNode {
  const [choice, setChoice] = useState(value === "" ? "never" : "date");
  const onChoice = (event: React.ChangeEvent<HTMLSelectElement>): void => {
    const next = event.currentTarget.value;
    setChoice(next);
    if (next === "never") onChange("");
    else if (next === "date")
      onChange(value === "" ? new Date(serverNowMs() + 30 * DAY_MS).toISOString() : value);
    else onChange(new Date(serverNowMs() + Number(next) * DAY_MS).toISOString());
  };
  return (
    <div>
      <NativeSelect label={label} value={choice} onChange={onChoice} data={CHOICES} />
      {choice === "date" && (
        <TextInput
          mt={8}
          type="datetime-local"
          label="Expiry date and time"
          value={value === "" ? "" : toLocal(value)}
          error={error}
          onChange={(event) => {
            const time = Date.parse(event.currentTarget.value);
            if (Number.isFinite(time)) onChange(new Date(time).toISOString());
          }}
        />
      )}
      {choice !== "never" && value !== "" && (
        <Text span c="dimmed" size="sm">
          {formatDateTime(value)}
        </Text>
      )}
    </div>
  );
}
