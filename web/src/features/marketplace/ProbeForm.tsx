import { TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import { Select } from "../../components/Select.tsx";
import type { ProbeResult } from "../../lib/wire.ts";
import { probeListing } from "./api.ts";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"].map((value) => ({ value, label: value }));

interface ProbeFormProps {
  found: ProbeResult | undefined;
  onFound: (found: ProbeResult | undefined) => void;
  onCancel: () => void;
}

/** Requests the API once to read its price and payee before it is listed. */
export function ProbeForm({ found, onFound, onCancel }: ProbeFormProps): ReactNode {
  const [url, setUrl] = useState("");
  const [method, setMethod] = useState("GET");
  const probe = useMutation({
    mutationFn: () => probeListing(url.trim(), method),
    onSuccess: onFound,
  });
  const forget = (): void => {
    probe.reset();
    onFound(undefined);
  };
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (!probe.isPending) probe.mutate();
      }}
    >
      <Stack gap={4}>
        <TextInput
          label="URL of the paid API"
          placeholder="https://api.example.com/v1/report"
          required
          type="url"
          autoComplete="off"
          spellCheck={false}
          data-autofocus
          value={url}
          onChange={(event) => {
            setUrl(event.currentTarget.value);
            forget();
          }}
        />
        <Select
          label="Method"
          value={method}
          options={METHODS}
          onChange={(next) => {
            setMethod(next);
            forget();
          }}
        />
        {probe.error && (
          <ErrorNotice
            title="This URL does not return payment terms that Purser supports"
            error={probe.error}
          />
        )}
        {!found && (
          <Row end>
            <Button onClick={onCancel}>Cancel</Button>
            <Button
              type="submit"
              variant="primary"
              disabled={url.trim() === ""}
              pending={probe.isPending && "Checking the API…"}
            >
              Check the URL
            </Button>
          </Row>
        )}
      </Stack>
    </form>
  );
}
