import { Stack } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Section } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Findings } from "../../features/validate/Findings.tsx";
import { Outlook, Verdict } from "../../features/validate/Outlook.tsx";
import { ValidateForm } from "../../features/validate/ValidateForm.tsx";
import type { Validation } from "../../lib/wire.ts";

export default function ValidateScreen(): ReactNode {
  const [checked, setChecked] = useState<Validation>();
  return (
    <>
      <PageHeader
        title="Check a paid API"
        lead="Why nobody can pay it, or finds it. Purser requests the URL without a payment."
      />
      <Stack gap="lg">
        <Section>
          <ValidateForm onChecked={setChecked} />
        </Section>
        {checked && (
          <>
            <Verdict checked={checked} />
            <Findings findings={checked.findings} />
            <Outlook checked={checked} />
          </>
        )}
      </Stack>
    </>
  );
}
